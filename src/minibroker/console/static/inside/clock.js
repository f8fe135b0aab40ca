/**
 * The broker's clocks, as a page may know them: its machine's microseconds, and its wall clock that a test turns.
 *
 * The rule: what is shown lags a little behind, so that bars are there before their moment comes.
 */

const LAG_US = 150_000
const SAMPLES = 50

/** The machine's monotonic clock of the broker. */
export class MonotonicClock {
  constructor() {
    this.forget()
  }

  forget() {
    this.offsets = []
    this.offsetUs = null
    this.heldUs = null
    this.wall = { us: 0, ms: 0 }
    this.turns = []
  }

  /** An event has come, with the broker's two clocks. The quickest of the latest events is the truest. */
  heard({ now_us, broker_ms, turns }) {
    this.wall = { us: now_us, ms: broker_ms }
    this.turns = turns
    this.offsets.push(now_us - performance.now() * 1000)
    if (this.offsets.length > SAMPLES) this.offsets.shift()
    this.offsetUs = Math.max(...this.offsets)
  }

  /** Hold what is shown, or let it go on. @param {boolean} isHeld */
  hold(isHeld) {
    this.heldUs = isHeld ? this.shownUs() : null
  }

  /** The moment at the right edge. */
  shownUs() {
    if (this.heldUs !== null) return this.heldUs
    return this.offsetUs === null ? 0 : performance.now() * 1000 + this.offsetUs - LAG_US
  }

  /** The broker's wall clock at `us`, in ms, as it was before later turns. */
  wallMs(us) {
    const turnedSince = this.turns.reduce((sum, [at, ms]) => (at > us && at <= this.wall.us ? sum + ms : sum), 0)
    return this.wall.ms + (us - this.wall.us) / 1000 - turnedSince
  }
}

/** "12:04:36.018", in UTC. */
export function clockTime(ms) {
  return new Date(ms).toISOString().slice(11, 23)
}

/** ":36.0180": seconds with tenths of a millisecond. */
export function secondsTime(ms) {
  const tenths = Math.floor((ms % 1) * 10 + 1e-6)
  return `:${new Date(Math.floor(ms)).toISOString().slice(17, 23)}${tenths}`
}
