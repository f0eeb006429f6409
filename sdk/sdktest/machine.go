package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Machine executes programs. The oracle is always there; a host adds its device,
// which computes in binary32.
type Machine interface {
	// Name is the machine's name in the report, for example "cpu".
	Name() string
	// Run executes a valid program without factorizations on inputs by name and
	// returns its outputs by name. Float inputs are rounded to the machine's
	// precision.
	Run(p *program.Program, inputs map[string]reference.Tensor) (map[string]reference.Tensor, error)
}

// Oracle executes programs in binary64.
type Oracle struct{}

// Name implements [Machine].
func (Oracle) Name() string { return "oracle" }

// Run implements [Machine].
func (Oracle) Run(p *program.Program, inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	return reference.Run(p, inputs)
}

// factorizes reports whether a program factorizes. Such a program runs only on the
// oracle, as refreshes do in hosts.
func factorizes(p *program.Program) bool {
	return slices.ContainsFunc(p.Nodes, func(n program.Node) bool {
		info, _ := n.Op.Info()
		return info.Class == program.ClassLinalg
	})
}
