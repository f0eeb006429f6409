package tile

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// RefusedError tells why a program is not one that this package executes. It is no
// fault of the program.
type RefusedError struct {
	Program string
	// Value is the input or node in the way, as "input \"x\"" or "%3 = dot".
	Value  string
	Reason string
}

// Error names the program, the value and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("program %q cannot run in tiles: %s: %s", e.Program, e.Value, e.Reason)
}

func (a *analysis) refuseInput(i int, format string, args ...any) error {
	return &RefusedError{a.p.Name, fmt.Sprintf("input %q", a.p.Inputs[i].Name), fmt.Sprintf(format, args...)}
}

func (a *analysis) refuse(n *program.Node, format string, args ...any) error {
	return &RefusedError{a.p.Name, fmt.Sprintf("%%%d = %s", len(a.refs), n.Op), fmt.Sprintf(format, args...)}
}
