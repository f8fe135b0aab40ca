// Starts the page: the top bar, the keys, and the page of the address.

import { Failure, forgetLacking, get, hasToken, lackListeners, takeToken } from './api.js'
import { knowBootstrap } from './commands.js'
import { fill, h, setClass, setText } from './dom.js'
import { termLink } from './glossary.js'
import { dialog, listenForKeys } from './keys.js'
import { onAddress, pageOf } from './router.js'
import { PAGES, SECTIONS } from './sections.js'
import { View, empty, live, sentences } from './view.js'

const CLUSTER_MS = 10_000

const main = /** @type {HTMLElement} */ (document.getElementById('main'))
const notices = /** @type {HTMLElement} */ (document.getElementById('notices'))
/** @type {View|null} */
let open = null
/** @type {any} */
let cluster = null
/** @type {Failure|null} */
let failure = null
/** @type {string[]} */
let lacking = []

const links = SECTIONS.map((each) => h('a', { href: each.href, 'data-section': each.section }, each.label))
fill(/** @type {HTMLElement} */ (document.getElementById('pages')), links)

const where = h('span', { class: 'wide' })
const extra = h('span', { id: 'broker-time' }) // the page Inside shows the broker's clock here
const readOnly = h('button', { type: 'button', class: 'plain', hidden: true, onclick: sayWhyReadOnly }, 'read only')
const liveButton = h('button', { type: 'button', class: 'live', onclick: () => live.set(!live.paused) }, 'live')
fill(/** @type {HTMLElement} */ (document.getElementById('status')), where, extra, readOnly, liveButton)

function showLive() {
  setText(liveButton, failure ? 'no answer' : live.paused ? 'paused' : 'live')
  setClass(liveButton, 'paused', live.paused)
  setClass(liveButton, 'failed', failure !== null)
  liveButton.title = live.paused ? 'Space goes on' : 'Space pauses'
}

function report(state) {
  if (failure?.message === state.failure?.message) return
  failure = state.failure
  showLive()
  showNotices()
}

/** Why a request failed, and what the page lacks. */
function showNotices() {
  const line = (text, ...more) => h('div', { class: 'notice bad' }, h('span', {}, ...sentences(text), ...more))
  fill(notices, failure && line(failure.message, failure.mayPass && ' Trying again.'), lacking.map((each) => line(each)))
}

function showLacking(lines) {
  lacking = lines
  showNotices()
}

async function show() {
  open?.close()
  delete main.dataset.page
  const found = pageOf(PAGES, location.pathname)
  const view = new View(main, found?.params ?? {}, cluster, report)
  open = view
  report({ failure: null })
  forgetLacking()
  showLacking([])
  for (const link of links) {
    if (link.dataset.section === found?.page.section) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  if (found === null) {
    view.title('Not found')
    main.dataset.page = location.pathname
    fill(main, h('h1', {}, 'No such page'), empty('There is nothing at this address', 'Choose a page above.'))
    return
  }
  const module = await view.until(() => found.page.load().catch(unloaded)).catch(() => null)
  if (module === null) return
  fill(main)
  main.dataset.page = location.pathname // the page that is open, for tests
  await view.attempt(async () => module.show(view))
}

/** A token is of one tab: the address that the console printed gives it to another. */
function sayWhyReadOnly() {
  const why = cluster?.changes
    ? 'This tab may change nothing: it lacks the token, which each tab has for itself. Open the address that the console printed at its start; it ends with #token=…'
    : 'This console only shows. Start it with --allow-changes to change things.'
  dialog('Read only', h('p', { class: 'body' }, why))
}

function unloaded() {
  throw new Failure(0, 'the console does not answer; start it again with `minibroker console`')
}

async function learnCluster() {
  try {
    cluster = await get('/api/cluster')
    knowBootstrap(cluster.bootstrap)
    const release = cluster.version !== '' && (cluster.control ? [', ', termLink('acts as'), ` Kafka ${cluster.version}`] : `, Kafka ${cluster.version}`)
    fill(where, cluster.bootstrap, release)
    readOnly.hidden = hasToken() && cluster.changes
    open?.learn(cluster)
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    setTimeout(learnCluster, CLUSTER_MS)
  }
}

document.getElementById('theme')?.addEventListener('click', () => {
  const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'
  document.documentElement.dataset.theme = theme
  localStorage.setItem('theme', theme)
})
takeToken()
listenForKeys()
live.listeners.add(showLive)
lackListeners.add(showLacking)
showLive()
onAddress(() => {
  scrollTo(0, 0)
  void show().then(() => main.focus({ preventScroll: true }))
})
void learnCluster()
void show()
