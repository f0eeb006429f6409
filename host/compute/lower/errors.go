package lower

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// UnsupportedError reports a program with an operation that no device executes:
// the factorizations, which run in refresh programs on the host.
type UnsupportedError struct {
	Program string
	Op      program.Op
}

// Error names the program and the operation.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("program %q: %s is not available on a device: factorizations belong into refresh programs, which the host executes", e.Program, e.Op)
}

// NodeError reports a node that could not be added to the graph.
type NodeError struct {
	Program string
	// Node is the node in the text form of programs, for example "%7 = dot".
	Node string
	Err  error
}

// Error names the program, the node and the cause.
func (e *NodeError) Error() string {
	return fmt.Sprintf("program %q: %s: %v", e.Program, e.Node, e.Err)
}

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// Check returns nil if a device can execute p, otherwise an [*UnsupportedError].
func Check(p *program.Program) error {
	for i := range p.Nodes {
		if info, _ := p.Nodes[i].Op.Info(); info.Class == program.ClassLinalg && info.Op != program.OpSortColumns {
			return &UnsupportedError{Program: p.Name, Op: p.Nodes[i].Op}
		}
	}
	return nil
}
