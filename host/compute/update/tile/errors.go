package tile

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// RefusedError says why this package does not execute a program. The program itself is
// not at fault.
type RefusedError struct {
	Program string
	// Value is the input or node that is the obstacle, as in "input \"x\"" or "%3 = dot".
	Value  string
	Reason string
	// Never says that the program can never run in tiles, in which every element is
	// computed from the same elements of other tensors alone. It is false for what could
	// run in tiles but is not implemented yet.
	Never bool
}

// Error names the program, the value and the reason.
func (e *RefusedError) Error() string {
	how := "does not run in tiles yet"
	if e.Never {
		how = "cannot run in tiles"
	}
	return fmt.Sprintf("program %q %s: %s: %s", e.Program, how, e.Value, e.Reason)
}

func (a *analysis) refuseInput(i int, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("input %q", a.p.Inputs[i].Name), Reason: fmt.Sprintf(format, args...)}
}

// refuse is for a node that tiles do not compute yet.
func (a *analysis) refuse(n *program.Node, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("%%%d = %s", len(a.refs), n.Op), Reason: fmt.Sprintf(format, args...)}
}

// never is for a node that no tile can compute, and whose result is the given value.
func (a *analysis) never(value int, n *program.Node, format string, args ...any) error {
	return &RefusedError{a.p.Name, fmt.Sprintf("%%%d = %s", value, n.Op), fmt.Sprintf(format, args...), true}
}

// refusePartial is for a node with an operand of which nothing but the fold of all axes is computed.
func (a *analysis) refusePartial(n *program.Node) error {
	return a.refuse(n, "an operand has some axes folded and others not")
}
