// What line_protocol.py says, for node: one JSON object a line on stdin, one a line on stdout, in order.

'use strict'

const readline = require('readline')

// `operations` are functions of the arguments' object, by name; they may return promises.
async function serve(operations) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, arguments: given } = JSON.parse(line)
    let reply
    try {
      reply = { result: (await operations[op](given)) ?? null }
    } catch (error) {
      reply = { error: describe(error) }
    }
    process.stdout.write(JSON.stringify(reply) + '\n')
  }
  process.exit(0)
}

function describe(error) {
  return { kind: error.name, code: error.code ?? null, message: String(error.message) }
}

module.exports = { serve, describe }
