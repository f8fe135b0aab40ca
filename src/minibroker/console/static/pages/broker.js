// The settings of one broker.

import { Failure } from '../api.js'
import { fill, h, setText } from '../dom.js'
import { visible } from '../format.js'
import { empty, panel } from '../view.js'
import { heading } from './cluster.js'
import { showSettingsAt } from './topic.js'

/** @param {import('../view.js').View} view */
export async function show(view) {
  const { broker } = view.params
  view.title(`Broker ${broker}`)
  const about = h('span', { class: 'about' })
  const place = h('div', {})
  fill(view.main, heading(`Broker ${visible(broker)}`, '/brokers', about), place)
  try {
    const { rows } = await view.get(`/api/brokers?filter=${encodeURIComponent(broker)}&n=100`)
    const row = rows.find((each) => String(each.id) === broker)
    if (row === undefined) throw new Failure(404, 'no such broker')
    setText(about, row.address + (row.controller ? ', the controller' : ''))
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404) throw error
    fill(place, panel('No such broker', {}, empty(`The cluster has no broker ${visible(broker)}`, h('a', { href: '/brokers' }, 'Brokers'), ' lists those that it has.')))
    return
  }
  await showSettingsAt(view, `/api/brokers/${encodeURIComponent(broker)}/settings`, 'of this broker', place)
}
