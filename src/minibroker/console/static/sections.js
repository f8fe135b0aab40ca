// The pages. To add one: a line here, and a module that exports `show(view)`.

/** @type {{label: string, section: string, href: string}[]} */
export const SECTIONS = [
  { label: 'Overview', section: 'overview', href: '/' },
  { label: 'Topics', section: 'topics', href: '/topics' },
  { label: 'Groups', section: 'groups', href: '/groups' },
  { label: 'Clients', section: 'clients', href: '/clients' },
  { label: 'Transactions', section: 'transactions', href: '/transactions' },
  { label: 'Cluster', section: 'cluster', href: '/brokers' },
  { label: 'Inside', section: 'inside', href: '/inside' },
]

/** @type {import('./router.js').Page[]} */
export const PAGES = [
  { pattern: '/', section: 'overview', load: () => import('./pages/overview.js') },
  { pattern: '/topics', section: 'topics', load: () => import('./pages/topics.js') },
  { pattern: '/topics/:topic', section: 'topics', load: () => import('./pages/topic.js') },
  { pattern: '/topics/:topic/:tab', section: 'topics', load: () => import('./pages/topic.js') },
  { pattern: '/groups', section: 'groups', load: () => import('./pages/groups.js') },
  { pattern: '/groups/:group', section: 'groups', load: () => import('./pages/group.js') },
  { pattern: '/clients', section: 'clients', load: () => import('./pages/clients.js') },
  { pattern: '/clients/:connection', section: 'clients', load: () => import('./pages/connection.js') },
  { pattern: '/transactions', section: 'transactions', load: () => import('./pages/transactions.js') },
  { pattern: '/brokers', section: 'cluster', load: () => import('./pages/brokers.js') },
  { pattern: '/brokers/:broker', section: 'cluster', load: () => import('./pages/broker.js') },
  { pattern: '/acls', section: 'cluster', load: () => import('./pages/acls.js') },
  { pattern: '/users', section: 'cluster', load: () => import('./pages/users.js') },
  { pattern: '/quotas', section: 'cluster', load: () => import('./pages/quotas.js') },
  { pattern: '/glossary', section: 'glossary', load: () => import('./pages/glossary.js') },
  { pattern: '/inside', section: 'inside', load: () => import('./inside/inside.js') },
]
