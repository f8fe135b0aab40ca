// Drivers of franz-go, as group_member.py, transformer.py, recorded.py and sharer.py are:
// member|transform|recorded|share and their arguments, or login.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
)

func main() {
	commands := map[string]func([]string) error{
		"member": member, "transform": transform, "recorded": recorded, "login": login, "share": share,
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type request struct {
	Op        string          `json:"op"`
	Arguments json.RawMessage `json:"arguments"`
}

// requests are the lines of line_protocol.py on stdin; the channel closes where stdin ends.
func requests() <-chan request {
	asked := make(chan request)
	go func() {
		defer close(asked)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var each request
			if json.Unmarshal(lines.Bytes(), &each) == nil {
				asked <- each
			}
		}
	}()
	return asked
}

func answer(result any, err error) {
	reply := map[string]any{"result": result}
	if err != nil {
		reply = map[string]any{"error": describe(err)}
	}
	text, _ := json.Marshal(reply)
	fmt.Println(string(text))
}

func describe(err error) map[string]any {
	described := map[string]any{"kind": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()}
	var known *kerr.Error
	if errors.As(err, &known) {
		described["kind"], described["code"] = known.Message, known.Code
	}
	return described
}
