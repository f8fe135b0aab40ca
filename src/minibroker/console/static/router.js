// From an address to a page. Every state of a page is in its address, so that each can be linked to.

/**
 * A page: `pattern` has a `:name` for each part that varies; `load` imports the module that exports `show`.
 * @typedef {object} Page
 * @property {string} pattern
 * @property {string} section  of the top bar that it belongs to
 * @property {() => Promise<{show: (view: import('./view.js').View) => void|Promise<void>}>} load
 */

// A browser takes `.` and `..` out of a path however they are written, and a name may be empty: such a name has a `~` in
// front, and so has one that looks like it. The console reads names so, too (answers.py).
const TO_GUARD = /^~*\.{0,2}$/
const GUARDED = /^~+\.{0,2}$/

/** @type {((address: string) => void)[]} */
const listeners = []

/** @param {(address: string) => void} listener  called with each new address */
export function onAddress(listener) {
  listeners.push(listener)
}

const announce = () => listeners.forEach((each) => each(location.pathname + location.search))

/** Opens an address of this page. @param {string} address */
export function go(address) {
  step(address)
  announce()
}

/** Changes the address without a new page: for filters and sorting. @param {string} address */
export function replace(address) {
  history.replaceState(history.state, '', address)
}

/** As `replace`, and the browser's Back undoes it. @param {string} address */
export function step(address) {
  if (address !== location.pathname + location.search) history.pushState(null, '', address)
}

/**
 * The page of a path, and its varying parts as they are meant, not as they are written.
 * @param {Page[]} pages
 * @param {string} path
 */
export function pageOf(pages, path) {
  const parts = path.split('/').filter((each) => each !== '')
  for (const page of pages) {
    const names = page.pattern.split('/').filter((each) => each !== '')
    if (names.length !== parts.length) continue
    /** @type {Record<string, string>} */
    const params = {}
    const fits = names.every((name, at) => {
      if (!name.startsWith(':')) return name === parts[at]
      try {
        const part = decodeURIComponent(parts[at])
        params[name.slice(1)] = GUARDED.test(part) ? part.slice(1) : part
      } catch {
        return false
      }
      return true
    })
    if (fits) return { page, params }
  }
  return null
}

/** An address of parts, each encoded. @param {...(string|number)} parts */
export function path(...parts) {
  return `/${parts.map((each) => encodeURIComponent(TO_GUARD.test(String(each)) ? `~${each}` : each)).join('/')}`
}

/** The address with these parameters; empty ones are left out. @param {string} base @param {Record<string, any>} query */
export function withQuery(base, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text === '' ? base : `${base}?${text}`
}

addEventListener('popstate', announce)
document.addEventListener('click', (event) => {
  const link = event.target instanceof Element ? event.target.closest('a[href]') : null
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || !plain) return
  if (link.origin !== location.origin || link.hasAttribute('download') || link.target !== '') return
  if (link.pathname.startsWith('/api/') || link.getAttribute('href')?.startsWith('#')) return
  event.preventDefault()
  go(link.pathname + link.search)
})
