// Deletes the first messages of a topic: a plan, the topic's name to be sure, then exactly the plan.

import { change } from '../api.js'
import { fill, h } from '../dom.js'
import { command, commandRow, option } from '../commands.js'
import { counted, number, visible } from '../format.js'
import { dialog } from '../keys.js'
import { path } from '../router.js'
import { problem } from '../view.js'
import { planTable, positionField } from './plans.js'

const PARTITIONS_LISTED = 500

/** @param {string} topic @param {number} partitions @param {() => void} done */
export function deleteRecords(topic, partitions, done) {
  const address = path('api', 'topics', topic, 'delete-records')
  const said = h('div', { role: 'status' })
  const plan = h('div', { class: 'plan' })
  const position = positionField('delete-before', [['end', 'the end: all messages']], () => clear())
  const partition = h('select', { id: 'delete-partition', onchange: () => clear() }, h('option', { value: '' }, 'all partitions'), Array.from({ length: Math.min(partitions, PARTITIONS_LISTED) }, (_, at) => h('option', { value: at }, String(at))))
  const name = h('input', { id: 'delete-topic', autocomplete: 'off', spellcheck: 'false', oninput: () => arrange() })
  const sure = [h('label', { for: 'delete-topic' }, 'Write ', h('b', {}, visible(topic)), ' to be sure'), name]
  const apply = h('button', { type: 'button', class: 'button danger', onclick: () => execute() })
  /** @type {any[]} */
  let planned = []
  const count = () => planned.reduce((sum, each) => sum + each.earliest - each.earliest_before, 0)

  function arrange() {
    const none = count() === 0
    for (const each of sure) each.hidden = none
    apply.hidden = none
    apply.disabled = name.value !== topic
    apply.textContent = `Delete ${counted(count(), 'message')}`
  }

  function clear() {
    planned = []
    name.value = ''
    fill(plan)
    fill(said)
    arrange()
  }

  const attempt = async (work) => {
    try {
      await work()
    } catch (error) {
      clear()
      fill(said, problem(error))
    }
  }
  const show = () => attempt(async () => {
    clear()
    planned = (await change('POST', address, { to: position.read(), partition: partition.value === '' ? null : Number(partition.value) })).rows
    fill(plan, planTable(['partition', 'begins at', 'then', 'deleted'], planned.map((each) => [String(each.partition), number(each.earliest_before), number(each.earliest), number(each.earliest - each.earliest_before)])))
    fill(said, h('p', { class: 'secondary' }, count() === 0 ? 'There is nothing to delete.' : 'Nothing has changed yet. Messages that are written meanwhile stay.'))
    arrange()
  })
  const execute = () => attempt(async () => {
    const before = Object.fromEntries(planned.filter((each) => each.earliest > each.earliest_before).map((each) => [each.partition, each.earliest]))
    const deleted = counted(count(), 'message')
    await change('POST', address, { before })
    clear()
    fill(said, h('p', { class: 'good' }, `${deleted} deleted.`))
    done()
  })
  dialog(
    `Delete messages of ${visible(topic)}`,
    h(
      'form',
      { onsubmit: (event) => { event.preventDefault(); void show() } },
      h(
        'div',
        { class: 'form body' },
        h('label', { for: 'delete-before' }, 'Before'),
        position.element,
        h('label', { for: 'delete-partition' }, 'Partition'),
        partition,
        h('div', { class: 'wide' }, plan, said),
        sure,
      ),
      commandRow(() => command(['topics', 'delete-records', '--before', position.read() || 'POSITION', ...option('--partition', partition.value)], [topic])),
      h('footer', {}, h('button', { class: 'button main' }, 'Show the plan'), apply),
    ),
  )
  arrange()
}
