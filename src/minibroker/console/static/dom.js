// Makes elements. Text from a broker becomes text and nothing else: no markup is ever parsed on this page.

const SVG = 'http://www.w3.org/2000/svg'

/**
 * @typedef {Node|string|number|null|undefined|false} Child
 * @typedef {Record<string, string|number|boolean|null|undefined|((event: any) => void)>} Attributes
 */

/**
 * An HTML element: attributes by name, listeners as `onclick`; absent children are left out.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child|Child[])} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children)
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child|Child[])} children
 * @returns {any}
 */
export function s(tag, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children)
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue
    if (typeof value === 'function') element.addEventListener(name.slice(2), value)
    else if (name === 'value') element.value = value
    else element.setAttribute(name, value === true ? '' : String(value))
  }
  add(element, children)
  return element
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child)
    else if (child !== null && child !== undefined && child !== false) element.append(child)
  }
}

/**
 * Puts these in place of everything inside.
 * @param {Element} element
 * @param {...(Child|Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren()
  add(element, children)
  return element
}

/**
 * Sets text only where it changes, so that a refresh disturbs neither a selection nor a screen reader.
 * @param {Node} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

/** @param {HTMLElement} element @param {string} name @param {boolean} on */
export function setClass(element, name, on) {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on)
}
