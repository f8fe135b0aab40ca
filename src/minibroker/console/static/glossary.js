// Words with their meaning: a link at the word, and the page with all of them.

import { h } from './dom.js'
import { withQuery } from './router.js'
import { TERMS } from './terms.js'

/** A word that leads to its meaning. @param {string} term @param {string} [label] */
export function termLink(term, label = term) {
  return h('a', { class: 'term', href: withQuery('/glossary', { term }), title: TERMS[term] }, label)
}
