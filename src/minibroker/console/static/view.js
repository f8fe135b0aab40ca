// What a page gets: where to draw, its address, and work that is repeated while it is looked at.

import { Ended, Failure, get, hasToken, pause, stream } from './api.js'
import { fill, h } from './dom.js'
import { replace, step, withQuery } from './router.js'

const RETRY_MS = 1000

/** Paused by the reader; pages ask before they refresh. */
export const live = {
  paused: false,
  /** @type {Set<() => void>} */
  listeners: new Set(),
  /** @param {boolean} paused */
  set(paused) {
    live.paused = paused
    live.listeners.forEach((each) => each())
  },
}

/** One page while it is open. */
export class View {
  /** @type {Record<string, string>} */
  params = {}
  query = new URLSearchParams()
  /** What is known of the cluster: see /api/cluster. @type {any} */
  cluster = null
  #closing = new AbortController()
  /** @type {Set<HTMLElement>} */
  #changing = new Set()

  /**
   * @param {HTMLElement} main
   * @param {Record<string, string>} params
   * @param {any} cluster
   * @param {(state: {failure: Failure|null}) => void} report
   */
  constructor(main, params, cluster, report) {
    this.main = main
    this.params = params
    this.cluster = cluster
    this.query = new URLSearchParams(location.search)
    this.report = report
  }

  /** What is known of the cluster from now on. @param {any} cluster */
  learn(cluster) {
    this.cluster = cluster
    for (const element of this.#changing) element.hidden = !this.mayChange
  }

  /** What is known of the cluster; waits for a broker that does not answer. @returns {Promise<any>} */
  async known() {
    if (this.cluster === null) this.learn(await this.until(() => this.get('/api/cluster')))
    return this.cluster
  }

  /** Whether the console allows changes, and this tab has its token. */
  get mayChange() {
    return Boolean(this.cluster?.changes) && hasToken()
  }

  /** An element that changes something: hidden while that is not allowed. @param {HTMLElement} element */
  forChanges(element) {
    this.#changing.add(element)
    element.hidden = !this.mayChange
    return element
  }

  /** Aborted when the page is left. */
  get signal() {
    return this.#closing.signal
  }

  close() {
    this.#closing.abort()
  }

  /** @param {string} title */
  title(title) {
    document.title = title === '' ? 'minibroker' : `${title} – minibroker`
  }

  /**
   * Puts a part of the page's state into its address. The browser's Back undoes a step: what `isStep` says, and a turn
   * of the page alone; it does not go through each letter of a filter.
   * @param {Record<string, any>} changes
   * @param {boolean} [isStep]
   */
  remember(changes, isStep = false) {
    /** @type {string[]} */
    const changed = []
    for (const [name, value] of Object.entries(changes)) {
      const text = value === null || value === undefined ? '' : String(value)
      if ((this.query.get(name) ?? '') !== text) changed.push(name)
      if (text === '') this.query.delete(name)
      else this.query.set(name, text)
    }
    const address = withQuery(location.pathname, Object.fromEntries(this.query))
    if (isStep || changed.join() === 'from') step(address)
    else replace(address)
  }

  /** The JSON of an address; stops when the page is left. @param {string} path */
  get(path) {
    return get(path, this.signal)
  }

  /**
   * What `work` returns, once the console and the broker answer: until then their failure is shown at the top. Throws
   * what is no such failure, and whatever it is once the page has been left or `signal` is aborted.
   * @template T
   * @param {() => Promise<T>} work
   * @param {AbortSignal} [signal]
   * @returns {Promise<T>}
   */
  async until(work, signal = this.signal) {
    const ended = AbortSignal.any([signal, this.signal])
    for (;;) {
      try {
        const found = await work()
        ended.throwIfAborted()
        this.report({ failure: null })
        return found
      } catch (error) {
        if (ended.aborted || !(error instanceof Failure && error.mayPass)) throw error
        this.report({ failure: error })
      }
      await pause(RETRY_MS, ended)
    }
  }

  /**
   * Does this now and again `ms` after it was done, while the page is visible and not paused. A failure is shown at
   * the top, and what is on the page stays there; the next success takes it away.
   * @param {number} ms
   * @param {() => Promise<void>} work
   * @returns {() => void}  does it at once; or again, once what is under way has ended
   */
  every(ms, work) {
    let woken = new AbortController()
    const again = () => woken.abort()
    let isAsked = false
    const run = async () => {
      for (let first = true; !this.signal.aborted; first = false) {
        woken = new AbortController()
        if (first || isAsked || (!live.paused && !document.hidden)) {
          isAsked = false
          await this.attempt(work)
        }
        await pause(ms, AbortSignal.any([this.signal, woken.signal]))
      }
    }
    const nudge = again
    document.addEventListener('visibilitychange', nudge, { signal: this.signal })
    live.listeners.add(nudge)
    this.signal.addEventListener('abort', () => live.listeners.delete(nudge))
    void run()
    return () => {
      isAsked = true
      again()
    }
  }

  /**
   * Hears a stream while the page is visible and not paused; at least its first event. An event with an `error` is a
   * failure of what the console reads, shown as `every` shows one.
   * @param {() => string} path
   * @param {(data: any) => void} on
   * @returns {() => void}  connects anew, to another address
   */
  hear(path, on) {
    /** @type {AbortController|null} */
    let hearing = null
    let heard = false
    const failed = (failure) => { if (!(failure instanceof Ended)) this.report({ failure }) }
    const listen = (anew = false) => {
      const wanted = !this.signal.aborted && !document.hidden && (!live.paused || !heard)
      if (hearing !== null && (anew || !wanted)) {
        hearing.abort()
        hearing = null
      }
      if (!wanted || hearing !== null) return
      hearing = new AbortController()
      const take = ({ data }) => {
        if (data.error) {
          failed(new Failure(502, data.error))
          return
        }
        this.report({ failure: null })
        heard = true
        on(data)
        listen()
      }
      void stream(path, { on: take, failed }, AbortSignal.any([this.signal, hearing.signal]))
    }
    const changed = () => listen()
    document.addEventListener('visibilitychange', changed, { signal: this.signal })
    live.listeners.add(changed)
    this.signal.addEventListener('abort', () => live.listeners.delete(changed))
    listen()
    return () => {
      heard = false
      listen(true)
    }
  }

  /** Does this once; a failure is shown at the top. @param {() => Promise<void>} work */
  async attempt(work) {
    try {
      await work()
      if (!this.signal.aborted) this.report({ failure: null })
    } catch (error) {
      if (this.signal.aborted) return
      if (!(error instanceof Failure)) throw error
      this.report({ failure: error })
      if (this.main.childElementCount === 0) fill(this.main, problem(error))
    }
  }
}

/** A failure where its result would be. @param {Error} error */
export function problem(error) {
  return h('div', { class: 'problem' }, ...sentences(error.message))
}

/** The reason, and the next step behind it. @param {string} message */
export function sentences(message) {
  const [reason, ...next] = message.split('; ')
  const advice = next.join('; ')
  return [h('b', {}, sentence(reason)), advice && ` ${sentence(advice)}`]
}

/** @param {string} text */
export function sentence(text) {
  return text === '' ? '' : `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`
}

/** What to show where there is nothing yet: that, and what to do first. @param {string} title @param {...any} more */
export function empty(title, ...more) {
  return h('div', { class: 'empty' }, h('p', { class: 'title' }, title), more.length > 0 && h('p', {}, ...more))
}

/**
 * A panel: a section with its heading.
 * @param {string} title
 * @param {{about?: any, end?: any, level?: number}} [head]
 * @param {...any} body
 */
export function panel(title, { about, end, level = 2 } = {}, ...body) {
  return h(
    'section',
    { class: 'panel', 'aria-label': title },
    h('header', {}, h(`h${level}`, {}, title), about && h('span', { class: 'about' }, about), end && h('div', { class: 'end' }, end)),
    ...body,
  )
}
