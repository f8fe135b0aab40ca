// The users that log in by SCRAM. A password is sent to the console, which hashes it; no broker gets it.

import { change } from '../api.js'
import { command, option } from '../commands.js'
import { h } from '../dom.js'
import { number, visible } from '../format.js'
import { path } from '../router.js'
import { empty } from '../view.js'
import { actions, ask, choice, form, labelled, showList, text } from './cluster.js'

const BOTH = ''
const MECHANISMS = [[BOTH, 'both'], ['SCRAM-SHA-256', 'SCRAM-SHA-256'], ['SCRAM-SHA-512', 'SCRAM-SHA-512']]
const GENERATED_BYTES = 18

/** @param {import('../view.js').View} view */
export function show(view) {
  showList(view, {
    at: '/users',
    title: 'Users',
    about: 'that log in by SCRAM',
    noun: 'user',
    sort: 'user',
    key: (row) => row.user,
    columns: (refresh) => [
      { name: 'user', label: 'user', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.user, title: row.user }) },
      ...MECHANISMS.slice(1).map(([name]) => ({ name, label: name, number: true, cell: (row) => (row.mechanisms[name] === undefined ? { text: '–', kind: 'dim' } : `${number(row.mechanisms[name])} iterations`) })),
      actions(view, (row) => visible(row.user), {
        Change: (row) => setPassword(row.user, Object.keys(row.mechanisms), refresh),
        Remove: (row) => ask(`Remove user ${visible(row.user)}`, `${visible(row.user)} can no longer log in. Connections that are open stay open.`, 'Remove user', () => command(['users', 'remove'], [row.user]), () => change('DELETE', path('api', 'users', row.user)), refresh),
      }),
    ],
    none: () => empty('No users yet', 'Only those that log in by SCRAM are listed; a broker’s JAAS settings may have others. On the command line: ', h('code', {}, 'minibroker users add alice'), '.'),
    add: 'Add user',
    onAdd: (refresh) => setPassword(null, [], refresh),
  })
}

/**
 * A new user, or a new password of one.
 * @param {string|null} user @param {string[]} known  the mechanisms that the user has @param {() => void} done
 */
function setPassword(user, known, done) {
  const name = text('user-name', { required: true, value: user ?? '', disabled: user !== null })
  const password = text('user-password', { type: 'password', required: true, autocomplete: 'new-password' })
  const mechanisms = choice('user-mechanism', MECHANISMS)
  mechanisms.value = known.length === 1 ? known[0] : BOTH
  const shown = h('input', { type: 'checkbox', onchange: () => { password.type = shown.checked ? 'text' : 'password' } })
  const generate = h('button', { type: 'button', class: 'button', onclick: () => { password.value = generated(); shown.checked = true; password.type = 'text'; password.select() } }, 'Generate')
  const chosen = () => (mechanisms.value === BOTH ? MECHANISMS.slice(1).map(([each]) => each) : [mechanisms.value])
  form(
    user === null ? 'Add user' : `Change the password of ${visible(user)}`,
    user === null ? 'Add user' : 'Change password',
    [
      ...labelled(name, 'User'),
      ...labelled(password, 'Password'),
      h('div', { class: 'wide toolbar' }, h('label', { class: 'check' }, shown, 'Show it'), generate),
      ...labelled(mechanisms, 'Mechanism'),
      h('p', { class: 'wide secondary' }, 'The brokers get a hash of the password: it cannot be read later. A user that exists gets the new one.'),
    ],
    // It asks for the password: one in a command would stay in the shell's history.
    () => command(['users', 'add', ...option('--mechanism', mechanisms.value)], [name.value || 'USER']),
    () => change('POST', '/api/users', { user: name.value, password: password.value, mechanisms: chosen() }),
    done,
  )
  if (user !== null) password.focus()
}

function generated() {
  const bytes = crypto.getRandomValues(new Uint8Array(GENERATED_BYTES))
  return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_')
}
