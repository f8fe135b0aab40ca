// The pages. To add one: a line here, and a module that exports `show(view)`.

/** @type {{label: string, section: string, href: string}[]} */
export const SECTIONS = [
  { label: 'Overview', section: 'overview', href: '/' },
  { label: 'Topics', section: 'topics', href: '/topics' },
  { label: 'Groups', section: 'groups', href: '/groups' },
  { label: 'Clients', section: 'clients', href: '/clients' },
  { label: 'Inside', section: 'inside', href: '/inside' },
]

/** @type {import('./router.js').Page[]} */
export const PAGES = [
  { pattern: '/', section: 'overview', load: () => import('./pages/overview.js') },
  { pattern: '/inside', section: 'inside', load: () => import('./inside/inside.js') },
]
