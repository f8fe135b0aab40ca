// The brokers of the cluster, and what each of them leads.

import { number } from '../format.js'
import { path } from '../router.js'
import { empty } from '../view.js'
import { showList } from './cluster.js'

/** @param {import('../view.js').View} view */
export function show(view) {
  showList(view, {
    at: '/brokers',
    title: 'Brokers',
    about: 'each with its settings',
    noun: 'broker',
    sort: 'id',
    key: (row) => String(row.id),
    opens: (row) => path('brokers', row.id),
    columns: () => [
      { name: 'id', label: 'broker', head: true, sorts: true, number: true, cell: (row) => ({ text: String(row.id), href: path('brokers', row.id) }) },
      { name: 'address', label: 'address', sorts: true, kind: 'clip', cell: (row) => (row.alive ? { text: row.address, title: row.address } : { text: '–', kind: 'dim' }) },
      { name: 'rack', label: 'rack', sorts: true, cell: (row) => row.rack ?? '' },
      { name: 'controller', label: 'role', term: 'controller', cell: roleOf },
      { name: 'leads', label: 'leads', number: true, sorts: true, term: 'leads', cell: (row) => number(row.leads) },
      { name: 'replicas', label: 'replicas', number: true, sorts: true, cell: (row) => number(row.replicas) },
      { name: 'in_sync', label: 'in sync', number: true, sorts: true, term: 'in sync', cell: (row) => ({ text: number(row.in_sync), kind: row.in_sync < row.replicas ? 'bad' : 'plain' }) },
    ],
    none: () => empty('The cluster names no brokers', 'It is starting; this page asks again.'),
  })
}

/** A broker that has replicas and is not in the metadata does not run. */
export function roleOf({ alive, controller }) {
  if (alive === false) return { text: 'does not run', kind: 'bad' }
  return controller ? { text: 'controller', kind: 'tag' } : ''
}
