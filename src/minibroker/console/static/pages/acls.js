// Access rules (ACLs): which user may do what, from where.

import { change } from '../api.js'
import { command } from '../commands.js'
import { h, setText } from '../dom.js'
import { visible } from '../format.js'
import { empty } from '../view.js'
import { actions, ask, choice, form, labelled, showList, text } from './cluster.js'

const OPERATIONS = ['Read', 'Write', 'Create', 'Delete', 'Alter', 'Describe', 'ClusterAction', 'DescribeConfigs', 'AlterConfigs', 'IdempotentWrite', 'TwoPhaseCommit', 'All']
/** What a rule is for, and its name in a sentence. */
const RESOURCES = [['Topic', 'topic'], ['Group', 'group'], ['TransactionalId', 'transactional id'], ['Cluster', 'the cluster']]
const EVERY_HOST = '*'

/** @param {import('../view.js').View} view */
export function show(view) {
  showList(view, {
    at: '/acls',
    title: 'ACLs',
    about: 'access rules: a deny wins over an allow',
    noun: 'rule',
    sort: 'name',
    key: (row) => row.text,
    columns: (refresh) => [
      { name: 'resource_type', label: 'resource', sorts: true, cell: (row) => RESOURCES.find(([type]) => type === row.resource_type)?.[1].replace('the ', '') ?? row.resource_type },
      { name: 'name', label: 'name', head: true, sorts: true, kind: 'name', cell: (row) => ({ text: row.name, title: row.text }) },
      { name: 'pattern', label: 'applies to', sorts: true, cell: (row) => (row.pattern === 'prefixed' ? { text: 'prefixed', kind: 'tag', title: 'all names that begin so' } : { text: row.name === '*' ? 'every name' : 'this name', kind: 'quiet' }) },
      { name: 'principal', label: 'user', sorts: true, kind: 'clip', cell: (row) => ({ text: row.principal, title: row.principal }) },
      { name: 'permission', label: 'rule', sorts: true, cell: (row) => ({ text: row.permission, kind: row.permission === 'deny' ? 'tag bad' : 'tag good' }) },
      { name: 'operation', label: 'operation', sorts: true, cell: (row) => row.operation },
      { name: 'host', label: 'host', sorts: true, cell: (row) => (row.host === EVERY_HOST ? { text: 'anywhere', kind: 'quiet' } : row.host === '' ? { text: 'empty', kind: 'bad', title: 'fits no client' } : row.host) },
      actions(view, (row) => visible(row.text), {
        Remove: (row) => ask('Remove rule', `${visible(row.text)}.`, 'Remove rule', () => lineOf('remove', row), () => change('DELETE', '/api/acls', row), refresh),
      }),
    ],
    none: (found) =>
      found.authorizer
        ? empty('No access rules yet', 'Only super users may do something, unless allow.everyone.if.no.acl.found is set. Rules of a whole role: ', h('code', {}, 'minibroker acls add --allow alice --consumer --topic orders --group billing'), '.')
        : empty('This cluster has no authorizer: every client may do everything', 'A broker with authorizer.class.name has access rules; minibroker takes ', h('code', {}, 'kafka.security.auth.SimpleAclAuthorizer'), '.'),
    takes: (found) => found.authorizer,
    add: 'Add rule',
    onAdd: addRule,
  })
}

/** @param {'add'|'remove'} verb @param {any} rule */
function lineOf(verb, { permission, principal, operation, resource_type: type, name, pattern, host }) {
  const resource = type === 'Cluster' ? ['--cluster'] : [`--${type.replace(/(?<=[a-z])[A-Z]/g, '-$&').toLowerCase()}`, name]
  const more = [...(pattern === 'prefixed' ? ['--prefixed'] : []), ...(host === EVERY_HOST ? [] : ['--host', host])]
  return command(['acls', verb, permission === 'deny' ? '--deny' : '--allow', principal, '--operation', operation, ...resource, ...more])
}

function addRule(done) {
  const permission = choice('acl-permission', [['allow', 'may'], ['deny', 'may not']], tell)
  const principal = text('acl-user', { required: true, placeholder: 'alice, or * for every user', oninput: tell })
  const operation = choice('acl-operation', OPERATIONS.map((each) => [each, each === 'All' ? 'do everything on' : each]), tell)
  const type = choice('acl-type', RESOURCES, tell)
  const name = text('acl-name', { required: true, placeholder: 'orders, or * for all', oninput: tell })
  const pattern = choice('acl-pattern', [['literal', 'this name alone'], ['prefixed', 'all names that begin so']], tell)
  const host = text('acl-host', { placeholder: 'an IP address; empty is anywhere', oninput: tell })
  const rule = h('p', { class: 'wide secondary', role: 'status' })
  const named = [...labelled(name, 'Name'), ...labelled(pattern, 'Applies to')]
  const row = () => ({
    permission: permission.value,
    principal: principal.value.trim(),
    operation: operation.value,
    resource_type: type.value,
    name: name.value.trim(),
    pattern: pattern.value,
    host: host.value.trim() || EVERY_HOST,
  })
  form(
    'Add rule',
    'Add rule',
    [...labelled(principal, 'User'), ...labelled(permission, 'Rule'), ...labelled(operation, 'Operation'), ...labelled(type, 'Resource'), ...named, ...labelled(host, 'Host'), rule],
    () => lineOf('add', row()),
    () => change('POST', '/api/acls', row()),
    done,
  )
  tell()

  /** The rule as a sentence, while it is written. */
  function tell() {
    const isCluster = type.value === 'Cluster'
    for (const each of named) each.hidden = isCluster
    name.required = !isCluster
    const { principal: user, host: from } = row()
    const resource = `${type.selectedOptions[0].textContent}${isCluster ? '' : ` ${name.value.trim() || '…'}${pattern.value === 'prefixed' ? '...' : ''}`}`
    const who = user === '' ? '…' : user.includes(':') ? user : `User:${user}`
    setText(rule, visible(`${who} ${permission.selectedOptions[0].textContent} ${operation.selectedOptions[0].textContent} ${resource}${from === EVERY_HOST ? '' : ` from ${from}`}`))
  }
}
