// Keys that work on every page; `?` shows them.

import { fill, h } from './dom.js'
import { go } from './router.js'
import { live, problem } from './view.js'

const GO = { o: '/', t: '/topics', g: '/groups', c: '/clients', x: '/transactions', b: '/brokers', i: '/inside' }
const HELP = [
  ['/', 'filter the list'],
  ['j k', 'next and previous row'],
  ['Enter', 'open the row'],
  ['Space', 'pause and go on'],
  ['g o', 'Overview'],
  ['g t', 'Topics'],
  ['g g', 'Groups'],
  ['g c', 'Clients'],
  ['g x', 'Transactions'],
  ['g b', 'Cluster: brokers'],
  ['g i', 'Inside'],
  ['← → ↑ ↓', 'Inside: from request to request'],
  ['t', 'Inside: the requests as a table'],
  ['?', 'this list'],
  ['Esc', 'close what is open'],
]
const SEQUENCE_MS = 1500
const SWITCH = 'keys'

let startedAt = 0

/** Whether keys without Ctrl or Alt do something; who dictates or slips on a key switches them off (WCAG 2.1.4). */
export function areKeysOn() {
  try {
    return localStorage.getItem(SWITCH) !== 'off'
  } catch {
    return true // storage is switched off: so is remembering
  }
}

/** @param {boolean} on */
function switchKeys(on) {
  try {
    if (on) localStorage.removeItem(SWITCH)
    else localStorage.setItem(SWITCH, 'off')
  } catch {
    // Nothing can be remembered.
  }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = event.target
  const inField = target instanceof Element && target.matches('input, select, textarea, [contenteditable]')
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  if (inField) {
    if (event.key === 'Escape') document.getElementById('main')?.focus({ preventScroll: true })
    return
  }
  if (document.querySelector('dialog[open]') || !areKeysOn()) return
  const inSequence = Date.now() - startedAt < SEQUENCE_MS
  startedAt = 0
  if (inSequence && event.key in GO) {
    go(GO[/** @type {keyof typeof GO} */ (event.key)])
  } else if (event.key === 'g') {
    startedAt = Date.now()
    return
  } else if (event.key === '/') {
    const field = document.querySelector('main [data-filter]')
    if (!(field instanceof HTMLInputElement)) return
    field.focus()
    field.select()
  } else if (event.key === 'j' || event.key === 'k') {
    move(event.key === 'j' ? 1 : -1)
  } else if (event.key === ' ') {
    if (target instanceof Element && target.closest('button, a, summary')) return
    live.set(!live.paused)
  } else if (event.key === '?') {
    showHelp()
  } else return
  event.preventDefault()
}

/** Moves the focus to the next or previous row's link. @param {number} by */
function move(by) {
  const links = [...document.querySelectorAll('main tbody [data-row-link]')]
  const at = links.findIndex((each) => each === document.activeElement)
  const next = at === -1 ? (by > 0 ? 0 : links.length - 1) : at + by
  const link = links[Math.min(Math.max(next, 0), links.length - 1)]
  if (link instanceof HTMLElement) link.focus()
}

/**
 * Closes what a page has opened at Esc, as long as the page is there. `close` returns whether there was anything.
 * @param {import('./view.js').View} view @param {() => boolean} close
 */
export function onEscape(view, close) {
  const pressed = (event) => {
    const isElsewhere = event.defaultPrevented || document.querySelector('dialog[open]') !== null
    if (event.key !== 'Escape' || isElsewhere || event.target?.matches?.('input, select, textarea')) return
    if (close()) event.preventDefault()
  }
  document.addEventListener('keydown', pressed, { signal: view.signal })
}

/**
 * A dialog with a heading; closed by Esc, by its buttons or by `close`. What it does has a Cancel beside it.
 * @param {string} title @param {...any} content
 */
export function dialog(title, ...content) {
  const closing = (label) => h('button', { type: 'button', class: 'button', onclick: () => box.close() }, label)
  const box = h('dialog', { 'aria-label': title }, h('header', {}, h('h2', {}, title), closing('Close')), ...content)
  box.querySelector('footer .button:is(.main, .danger)')?.before(closing('Cancel'))
  box.addEventListener('close', () => box.remove())
  document.body.append(box)
  box.showModal()
  return box
}

/**
 * Does what a dialog is for, and closes it; a failure is shown in it.
 * @param {HTMLDialogElement} box @param {Element} said @param {() => Promise<unknown>} work @param {() => void} done
 */
export async function closeAfter(box, said, work, done) {
  try {
    await work()
    box.close()
    done()
  } catch (error) {
    fill(said, problem(error))
  }
}

function showHelp() {
  const rows = HELP.flatMap(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)])
  const on = h('input', { type: 'checkbox', onchange: () => switchKeys(on.checked) })
  on.checked = areKeysOn()
  const off = 'Off, a key that slips or is dictated does nothing. This browser remembers it; Tab, Enter and Esc always work.'
  const words = h('p', { class: 'body secondary' }, 'What a word means is in the ', h('a', { href: '/glossary', onclick: () => box.close() }, 'glossary'), '; a dotted word in the head of a table leads there.')
  const box = dialog('Keys', h('dl', { class: 'keys body' }, rows), words, h('footer', {}, h('div', { class: 'said' }, h('label', { class: 'check' }, on, 'Single keys are on'), h('p', { class: 'secondary' }, off))))
}

export function listenForKeys() {
  document.getElementById('keys')?.addEventListener('click', showHelp)
  document.addEventListener('keydown', onKey)
}
