// The cluster at a glance.

import { fill, h, setText } from '../dom.js'
import { counted, number } from '../format.js'
import { panel } from '../view.js'

const REFRESH_MS = 3000

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('')
  const about = h('span', { class: 'about' })
  const facts = h('dl', { class: 'facts' })
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Overview'), about),
    panel('Cluster', {}, h('div', { class: 'body' }, facts)),
  )
  view.every(REFRESH_MS, async () => {
    const cluster = await view.get('/api/cluster')
    setText(about, cluster.bootstrap)
    fill(
      facts,
      fact('brokers', number(cluster.brokers.length)),
      fact('topics', number(cluster.topics)),
      fact('partitions', number(cluster.partitions)),
      fact('offline', counted(cluster.offline, 'partition')),
    )
  })
}

function fact(name, value) {
  return h('div', {}, h('dt', {}, name), h('dd', { class: 'big' }, value))
}
