// Asks the console for JSON and for streams of events. The token of the address is kept for this tab only.

const TOKEN = 'token'
const NOT_SERVED = 501 // the cluster does not know such a request

/** Takes the token out of the address, where it would be copied with a link. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash)
  if (!found) return
  sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]))
  history.replaceState(null, '', location.pathname + location.search)
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN)
  return token === null ? more : { ...more, authorization: `Bearer ${token}` }
}

/** Why a request failed, for people: the reason and the next step. `status` is 0 if the console did not answer. */
export class Failure extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message)
    this.status = status
  }

  /** Whether it is of the console or the broker, and may pass: not of what was asked. */
  get mayPass() {
    return this.status === 0 || (this.status >= 500 && this.status !== NOT_SERVED)
  }
}

/** A stream has ended, which the next try may mend. */
export class Ended extends Failure {}

/**
 * What `work` reads from the console. Throws Failure, also for a response that is cut off.
 * @template T
 * @param {() => Promise<T>} work
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function read(work, signal) {
  try {
    return await work()
  } catch (error) {
    if (signal?.aborted) throw error
    throw new Failure(0, 'the console does not answer; start it again with `minibroker console`')
  }
}

/** What the newest answers of the open page lack, and why: lines by the address that was asked. */
const lacking = new Map()
/** @type {Set<(lines: string[]) => void>} */
export const lackListeners = new Set()

/** Notes what an answer lacks; a later one of the same address may have it. @param {string} path @param {string[]} [lines] */
function note(path, lines = []) {
  const address = path.split('?')[0]
  if (lines.length === 0 && !lacking.has(address)) return
  if (lines.length === 0) lacking.delete(address)
  else lacking.set(address, lines)
  const every = [...new Set([...lacking.values()].flat())]
  for (const listener of lackListeners) listener(every)
}

/** Forgets what is lacking: another page is shown. */
export function forgetLacking() {
  lacking.clear()
}

async function asked(path, options) {
  const response = await read(() => fetch(path, options), options.signal)
  if (response.ok) return response
  let message = `the console answered ${response.status}`
  try {
    message = (await response.json()).error ?? message
  } catch {
    // Not from the console: the status is all there is.
  }
  throw new Failure(response.status, message)
}

/**
 * The JSON of an address below /api. Throws Failure.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  const early = await earlyAnswer(path)
  const response = early?.ok ? early : await asked(path, { headers: headers(), signal })
  const found = await read(() => response.json(), signal)
  signal?.throwIfAborted()
  note(path, found.lacks)
  return found
}

/** The answer that early.js has asked for; only once. @param {string} path @returns {Promise<Response|null>} */
async function earlyAnswer(path) {
  /** @type {Map<string, Promise<Response|null>>|undefined} */
  const early = /** @type {any} */ (window).early
  const answer = early?.get(path) ?? null
  early?.delete(path)
  return answer
}

/**
 * Changes something. Throws Failure.
 * @param {'POST'|'PUT'|'DELETE'} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export async function change(method, path, body = {}) {
  const options = { method, headers: headers({ 'content-type': 'application/json' }), body: JSON.stringify(body) }
  const response = await asked(path, options)
  return read(() => response.json())
}

/** The bytes of an address. Throws Failure. @param {string} path */
export async function blobAt(path) {
  const response = await asked(path, { headers: headers() })
  return read(() => response.blob())
}

/** Saves what an address answers as a file. @param {string} path @param {string} name */
export async function download(path, name) {
  save(await blobAt(path), name)
}

/** Saves this as a file. @param {Blob} data @param {string} name */
export function save(data, name) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(data)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

/**
 * @typedef {object} StreamEvent
 * @property {string} name  'message' unless the console names it
 * @property {any} data
 * @property {string|null} id
 */

/**
 * Reads a stream until it is aborted; connects again where it ended, from the last event on.
 * @param {string|(() => string)} path  made anew for each connection, if it is a function
 * @param {object} handlers
 * @param {(event: StreamEvent) => void} handlers.on
 * @param {() => void} [handlers.opened]
 * @param {(failure: Failure) => void} [handlers.failed]  shown while the next try waits
 * @param {AbortSignal} signal
 */
export async function stream(path, { on, opened, failed }, signal) {
  let lastId = null
  let wait = 250
  while (!signal.aborted) {
    try {
      const more = lastId === null ? {} : { 'last-event-id': lastId }
      const address = typeof path === 'string' ? path : path()
      const response = await asked(address, { headers: headers(more), signal })
      opened?.()
      wait = 250
      for await (const event of eventsOf(response.body)) {
        if (event.id !== null) lastId = event.id
        note(address, event.data?.lacks)
        on(event)
      }
      if (!signal.aborted) throw new Ended(0, 'the stream ended; connecting again')
    } catch (error) {
      if (signal.aborted) return
      failed?.(error instanceof Failure ? error : new Failure(0, String(error)))
      if (error instanceof Failure && error.status >= 400 && error.status < 500) return
      await pause(wait, signal)
      wait = Math.min(wait * 2, 4000)
    }
  }
}

/** Waits, or less if it is aborted. @param {number} ms @param {AbortSignal} signal */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(undefined)
      return
    }
    const timer = setTimeout(done, ms)
    function done() {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve(undefined)
    }
    signal.addEventListener('abort', done)
  })
}

/** @param {ReadableStream<Uint8Array>} body */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    text += value
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) {
      const event = { name: 'message', data: null, id: null }
      let data = ''
      for (const line of block.split('\n')) {
        if (line.startsWith('data: ')) data += line.slice(6)
        else if (line.startsWith('event: ')) event.name = line.slice(7)
        else if (line.startsWith('id: ')) event.id = line.slice(4)
      }
      if (data) yield { ...event, data: JSON.parse(data) }
    }
  }
}
