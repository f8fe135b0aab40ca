// Puts text on the clipboard, and says whether it is there.

import { h, setText } from './dom.js'

/**
 * @param {Element} said  where the outcome is told
 * @param {string} text
 * @param {string} what  such as `3 rows`
 */
export async function copyTo(said, text, what) {
  setText(said, (await isCopied(text)) ? `${what} copied` : 'The browser does not let this page copy')
}

/** @param {string} text */
async function isCopied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return isSelectionCopied(text) // a page that came over plain HTTP from another machine has no clipboard
  }
}

/** @param {string} text */
function isSelectionCopied(text) {
  const before = document.activeElement
  const field = h('textarea', { class: 'hidden-text', 'aria-hidden': 'true', value: text })
  document.body.append(field)
  field.select()
  const done = document.execCommand('copy')
  field.remove()
  if (before instanceof HTMLElement) before.focus()
  return done
}
