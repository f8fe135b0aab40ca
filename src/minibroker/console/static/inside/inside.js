// What goes on inside a broker.

import { fill, h } from '../dom.js'
import { empty, panel } from '../view.js'

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Inside')
  fill(
    view.main,
    h('div', { class: 'head' }, h('h1', {}, 'Inside')),
    panel('Requests', {}, empty('This needs minibroker with --control', 'Start the broker with `minibroker serve --console`.')),
  )
}
