// Asks for what the page of this address shows first, while its modules are still loading. `get` of api.js takes it.
(() => {
  /** What a page asks for first, by its address without filters. @type {Record<string, string[]>} */
  const firsts = { '/topics': ['/api/topics?sort=name&n=50&kept=1'] }
  const headers = {}
  try {
    const [, inAddress] = /^#token=(.+)$/.exec(location.hash) ?? []
    const token = inAddress === undefined ? sessionStorage.getItem('token') : decodeURIComponent(inAddress)
    if (token !== null) headers.authorization = `Bearer ${token}`
  } catch {
    // Storage is switched off: no token either.
  }
  const paths = ['/api/cluster', ...(location.search === '' ? (firsts[location.pathname] ?? []) : [])]
  window.early = new Map(paths.map((path) => [path, fetch(path, { headers }).catch(() => null)]))
})()
