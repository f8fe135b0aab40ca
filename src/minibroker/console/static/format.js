// Numbers, times and bytes as text. What could deceive an eye is spelled out, as the command line does.

// Not Intl.NumberFormat: a browser takes longer to make one than to show the first page.
const THOUSANDS = /\B(?=(?:\d{3})+$)/g
// Control characters, marks of writing direction, and separators that no font draws.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g
const LONE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g
const JOINERS = /[\u200c\u200d]/
const JOINED = /(?:\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]?\u200d\p{Extended_Pictographic}|[\p{sc=Arab}\p{sc=Syrc}\p{sc=Deva}\p{sc=Beng}\p{sc=Guru}\p{sc=Gujr}\p{sc=Orya}\p{sc=Taml}\p{sc=Telu}\p{sc=Knda}\p{sc=Mlym}\p{sc=Sinh}]\p{M}*[\u200c\u200d]\p{L})/u
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

/** With commas, and three decimals at most. @param {number|null|undefined} value */
export function number(value) {
  if (value === null || value === undefined) return '–'
  const [whole, decimals] = String(Number.isInteger(value) ? value : Math.round(value * 1000) / 1000).split('.')
  return whole.replace(THOUSANDS, ',') + (decimals === undefined ? '' : `.${decimals}`)
}

/** 1 topic, 2 topics. @param {number} count @param {string} noun @param {string} [plural] */
export function counted(count, noun, plural = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : plural}`
}

/** @param {number|null|undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return '–'
  let value = size
  let unit = 0
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024
    unit += 1
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`
}

/** A rate a second. @param {number|null|undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return '–'
  return value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(1)
}

/** A number of seconds as one or two units. @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–'
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  if (seconds < 100) return `${Math.round(seconds)} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 100) return `${minutes} min`
  const hours = Math.round(minutes / 60)
  return hours < 50 ? `${hours} h` : `${number(Math.round(hours / 24))} d`
}

/** As `duration`, of what may not have been asked for yet. @param {number|null|undefined} seconds */
export const waited = (seconds) => (seconds === undefined ? '…' : duration(seconds))

const NO_LIMIT = ['9223372036854775807', '2147483647']
const UNIT_MS = { ms: 1, seconds: 1000, minutes: 60_000, hours: 3_600_000 }
const SPANS = /** @type {[number, string][]} */ ([[86_400_000, 'day'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']])

/**
 * The value of a setting for people, by the unit at the end of its name: 604800000 of retention.ms is 7 days. Empty
 * where it says no more than the value itself.
 * @param {string} name
 * @param {string|null} value
 */
export function meant(name, value) {
  if (value === null || !/^-?\d+$/.test(value)) return ''
  if (NO_LIMIT.includes(value)) return 'no limit'
  const [, unit] = /\.(ms|seconds|minutes|hours|bytes)$/.exec(name) ?? []
  if (unit === undefined) return ''
  if (Number(value) < 0) return /retention\.\w+$/.test(name) ? 'no limit' : ''
  if (unit === 'bytes') return Number(value) < 1024 ? '' : bytes(Number(value)).replace('.0 ', ' ')
  const ms = Number(value) * UNIT_MS[/** @type {keyof typeof UNIT_MS} */ (unit)]
  const [span, word] = SPANS.find(([each]) => ms >= each) ?? []
  if (span === undefined || word === undefined || span === UNIT_MS[/** @type {keyof typeof UNIT_MS} */ (unit)]) return ''
  const count = Math.round((ms * 100) / span) / 100
  return word === 'day' ? counted(count, word) : `${number(count)} ${word}`
}

/** A name of at most so many characters: its beginning and its end. @param {string} name @param {number} [most] */
export function shortName(name, most = 48) {
  return name.length <= most ? name : `${name.slice(0, most / 2 - 1)}…${name.slice(-most / 2)}`
}

/**
 * The partitions of an assignment, by topic: orders 0, 1; flights 3.
 * @param {string[]} partitions  each TOPIC-NUMBER
 */
export function assignment(partitions) {
  /** @type {Map<string, string[]>} */
  const found = new Map()
  for (const each of partitions) {
    const at = each.lastIndexOf('-')
    const topic = each.slice(0, at)
    found.set(topic, [...(found.get(topic) ?? []), each.slice(at + 1)])
  }
  return [...found].map(([topic, numbers]) => `${shortName(topic)} ${numbers.join(', ')}`).join('; ')
}

const pad = (value, width = 2) => String(value).padStart(width, '0')

/** Is a time that a Date can hold. @param {number} ms */
const isTime = (ms) => Math.abs(ms) <= 8.64e15

/** 12:04:36.018 of a time in ms, in UTC. @param {number|null|undefined} ms */
export function clock(ms) {
  if (ms === null || ms === undefined || ms < 0 || !isTime(ms)) return '–'
  return new Date(ms).toISOString().slice(11, 23)
}

/** 2013-01-01 12:04:36.018 in UTC. @param {number|null|undefined} ms */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0 || !isTime(ms)) return '–'
  return new Date(ms).toISOString().replace('T', ' ').replace('Z', '')
}

/** The time of day if it is of today, else with its date; in UTC. @param {number|null|undefined} ms */
export function when(ms) {
  const [day, hours] = time(ms).split(' ')
  return hours !== undefined && day === time(Date.now()).slice(0, 10) ? hours : time(ms)
}

/** For a title: the time where the reader is. @param {number|null|undefined} ms */
export function localTime(ms) {
  if (ms === null || ms === undefined || ms < 0 || !isTime(ms)) return 'no time'
  const at = new Date(ms)
  const offset = -at.getTimezoneOffset()
  const sign = offset < 0 ? '-' : '+'
  const zone = `${sign}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())} here (UTC${zone})`
}

/** Text in which nothing is invisible. @param {string|null|undefined} text */
export function visible(text) {
  return text === null || text === undefined ? '' : text.replace(UNSEEN, spelled).replace(LONE, spelled)
}

/** Text over several lines, as people write it: line ends, tabs, and joiners where a script or an emoji needs them. @param {string} text */
export function visibleLines(text) {
  return text.replace(UNSEEN, (each, at) => (each === '\n' || each === '\t' || joins(text, at) ? each : spelled(each))).replace(LONE, spelled)
}

/** As `visibleLines`, on one line. @param {string} text */
export function visibleWords(text) {
  return text.replace(UNSEEN, (each, at) => (joins(text, at) ? each : spelled(each))).replace(LONE, spelled)
}

/** Whether a joiner stands where writing needs it: between emojis, or letters of a script that joins them. */
const joins = (text, at) => JOINERS.test(text[at]) && JOINED.test(text.slice(Math.max(0, at - 4), at + 3))

const spelled = (each) => `\\u${pad(each.charCodeAt(0).toString(16), 4)}`

/** @param {string} base64 @returns {Uint8Array} */
export function bytesOf(base64) {
  const text = atob(base64)
  const data = new Uint8Array(text.length)
  for (let at = 0; at < text.length; at += 1) data[at] = text.charCodeAt(at)
  return data
}

/** Rows of sixteen bytes: offset, hexadecimal, what is printable. @param {Uint8Array} data */
export function hexdump(data) {
  const rows = []
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)]
    const digits = row.map((each) => pad(each.toString(16))).join(' ')
    const text = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : '.')).join('')
    rows.push(`${pad(at.toString(16), 6)}  ${digits.padEnd(47)}  ${text}`)
  }
  return rows.join('\n')
}
