// Sets the theme before the first paint: the one chosen here before, else that of the system.
(() => {
  const system = matchMedia('(prefers-color-scheme: dark)')
  const chosen = () => {
    try {
      return localStorage.getItem('theme')
    } catch {
      return null // storage is switched off
    }
  }
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? 'dark' : 'light')
  }
  system.addEventListener('change', apply)
  apply()
})()
