// One broker: what it leads, and its settings while it runs.

import { fill, h, setText } from '../dom.js'
import { number, visible } from '../format.js'
import { path, withQuery } from '../router.js'
import { empty, panel } from '../view.js'
import { heading } from './cluster.js'
import { setFacts } from './overview.js'
import { showSettingsAt } from './topic.js'

const REFRESH_MS = 3000

/** @param {import('../view.js').View} view */
export function show(view) {
  const { broker } = view.params
  view.title(`Broker ${broker}`)
  const about = h('span', { class: 'about' })
  const facts = h('dl', { class: 'facts' })
  const partitions = panel('Partitions', {}, h('div', { class: 'body' }, facts))
  const settings = h('div', { class: 'panels-below' })
  const none = h('div', { class: 'panels-below' })
  partitions.hidden = true
  fill(view.main, heading(`Broker ${visible(broker)}`, '/brokers', about), partitions, none, settings)
  view.every(REFRESH_MS, async () => {
    const { rows } = await view.get(withQuery('/api/brokers', { filter: broker, n: 100 }))
    const row = rows.find((each) => String(each.id) === broker)
    partitions.hidden = row === undefined
    settings.hidden = row?.alive !== true
    if (row === undefined) {
      setText(about, '')
      fill(none, panel('No such broker', {}, empty(`The cluster has no broker ${visible(broker)}`, h('a', { href: '/brokers' }, 'Brokers'), ' lists those that it has.')))
      return
    }
    setText(about, row.alive ? row.address + (row.controller ? ', the controller' : '') : 'does not run')
    setFacts(facts, [
      ['leads', number(row.leads)],
      ['replicas here', number(row.replicas)],
      ['in sync', number(row.in_sync), row.in_sync < row.replicas],
    ])
    fill(none, !row.alive && panel('Settings', {}, empty('This broker does not run', 'No broker of the cluster sees it. Other brokers lead its partitions, where a replica was in sync. Its settings are here again when it is back.')))
    if (row.alive && settings.childElementCount === 0) await showSettingsAt(view, ['--broker', broker], path('api', 'brokers', broker, 'settings'), 'of this broker', settings)
  })
}
