// Quotas: how fast users and client ids may produce, consume and ask.

import { change, Failure } from '../api.js'
import { command } from '../commands.js'
import { h } from '../dom.js'
import { bytes, number, visible } from '../format.js'
import { empty } from '../view.js'
import { actions, ask, choice, form, labelled, showList, text } from './cluster.js'

/** Each quota with its label, and how a limit is shown. @type {[string, string, (limit: number) => string][]} */
const QUOTAS = [
  ['producer_byte_rate', 'produces', (limit) => `${bytes(limit)}/s`],
  ['consumer_byte_rate', 'consumes', (limit) => `${bytes(limit)}/s`],
  ['request_percentage', 'requests', (limit) => `${number(limit)} % of a core`],
]
const UNITS = { producer_byte_rate: 'bytes a second', consumer_byte_rate: 'bytes a second', request_percentage: '% of one core' }
const NONE = 'none'
const DEFAULT = 'default'
const NAMED = 'named'

/** @param {import('../view.js').View} view */
export function show(view) {
  showList(view, {
    at: '/quotas',
    title: 'Quotas',
    about: 'each broker enforces them by itself',
    noun: 'entity with quotas',
    plural: 'entities with quotas',
    sort: 'entity',
    key: (row) => row.text,
    columns: (refresh) => [
      { name: 'entity', label: 'of', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.text, title: row.text }) },
      ...QUOTAS.map(([name, label, shown]) => ({ name, label, number: true, sorts: true, cell: (row) => (row.quotas[name] === undefined ? { text: '–', kind: 'dim', title: 'no limit here' } : { text: shown(row.quotas[name]), title: `${name}=${row.quotas[name]}`, kind: 'plain' }) })),
      actions(view, (row) => `the quotas of ${visible(row.text)}`, {
        Change: (row) => setQuotas(row, refresh),
        Remove: (row) => ask(`Remove the quotas of ${visible(row.text)}`, `All limits of ${visible(row.text)} are lifted.`, 'Remove quotas', () => command(['quotas', 'remove', ...optionsOf(row.entity)]), () => change('POST', '/api/quotas', { entity: row.entity, unset: Object.keys(row.quotas) }), refresh),
      }),
    ],
    none: () => empty('No quotas', 'No client is limited. On the command line: ', h('code', {}, 'minibroker quotas set --client-id slow consumer_byte_rate=10000'), '.'),
    add: 'Add quotas',
    onAdd: (refresh) => setQuotas(null, refresh),
  })
}

/** @param {Record<string, string|null>} entity */
const optionsOf = (entity) => Object.entries(entity).flatMap(([kind, name]) => (name === null ? [`--default-${kind}`] : [`--${kind}`, name]))

/** Sets the quotas of an entity: a new one, or that of a row. @param {any} row @param {() => void} done */
function setQuotas(row, done) {
  const parts = row === null ? [entityPart('user', 'User'), entityPart('client-id', 'Client id')] : []
  const limits = QUOTAS.map(([name, label]) => ({ name, label, field: text(`quota-${name}`, { type: 'number', min: 0, step: 'any', placeholder: 'no limit', value: row?.quotas[name] ?? '' }) }))
  const entity = () => row?.entity ?? Object.assign({}, ...parts.map((each) => each.read()))
  form(
    row === null ? 'Add quotas' : `Change the quotas of ${visible(row.text)}`,
    row === null ? 'Add quotas' : 'Change quotas',
    [
      ...parts.flatMap((each) => each.content),
      ...limits.flatMap(({ name, label, field }) => [h('label', { for: field.id }, `${label[0].toUpperCase()}${label.slice(1)}`), h('div', { class: 'toolbar' }, field, h('span', { class: 'secondary' }, UNITS[name]))]),
      h('p', { class: 'wide secondary' }, 'The most specific quota counts: user and client id before user before client id, a name before the default.'),
    ],
    () => command(['quotas', 'set', ...optionsOf(entity())], limits.filter(({ field }) => field.value !== '').map(({ name, field }) => `${name}=${field.value}`)),
    async () => {
      if (Object.keys(entity()).length === 0) throw new Failure(400, 'neither a user nor a client id is chosen; choose one of them or both')
      const set = Object.fromEntries(limits.filter(({ field }) => field.value !== '').map(({ name, field }) => [name, Number(field.value)]))
      const unset = limits.filter(({ name, field }) => field.value === '' && row?.quotas[name] !== undefined).map(({ name }) => name)
      if (Object.keys(set).length + unset.length === 0) throw new Failure(400, 'there is no limit; fill in one of them')
      await change('POST', '/api/quotas', { entity: entity(), set, unset })
    },
    done,
  )
}

/** A user or a client id: none, the default, or a name. @param {string} kind @param {string} label */
function entityPart(kind, label) {
  const which = choice(`quota-${kind}`, [[NONE, 'any'], [DEFAULT, 'the default'], [NAMED, 'with the name']], () => arrange())
  const name = text(`quota-${kind}-name`, { 'aria-label': `Name of the ${kind}` })
  const arrange = () => { name.hidden = which.value !== NAMED; name.required = !name.hidden }
  arrange()
  return {
    content: [h('label', { for: which.id }, label), h('div', { class: 'toolbar' }, which, name)],
    read: () => (which.value === NONE ? {} : { [kind]: which.value === DEFAULT ? null : name.value }),
  }
}
