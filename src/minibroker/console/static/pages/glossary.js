// The words of the console and what they mean.

import { fill, h } from '../dom.js'
import { TERMS } from '../terms.js'
import { panel } from '../view.js'

/** @param {import('../view.js').View} view */
export function show(view) {
  view.title('Glossary')
  const asked = view.query.get('term')
  const rows = Object.entries(TERMS).sort(([a], [b]) => (a < b ? -1 : 1)).map(([term, meaning]) => h('div', { class: term === asked ? 'at' : null }, h('dt', {}, term), h('dd', {}, meaning)))
  fill(view.main, h('div', { class: 'head' }, h('h1', {}, 'Glossary')), panel('Words of the console', {}, h('dl', { class: 'glossary' }, rows)))
  view.main.querySelector('.glossary .at')?.scrollIntoView({ block: 'center' })
}
