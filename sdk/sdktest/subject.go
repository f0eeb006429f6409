package sdktest

import (
	"fmt"
	"iter"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Subject is a plugin under test, in this process or in another: what it is asked about
// is an [sdk.Site] or an [sdk.Tensor], and it answers with an [spec.Quantizer] or
// an [spec.Optimizer].
type Subject[Question, Answer any] struct {
	// Describe returns the description.
	Describe func() (sdk.Description, error)
	// Programs returns the checked programs of a site or tensor. An error that wraps
	// [*sdk.Refusal] says that the plugin does not support the settings or the
	// shape; every other one is a failure of the plugin.
	Programs func(Question) (Answer, error)
	// Step computes an update with an opaque optimizer; nil for plugins that are programs.
	Step func(Question, sdk.OpaqueStep) error
	// Search finds the state of a site, of a quantizer that searches; nil for others.
	Search func(Question, sdk.SearchInput) error
}

// QuantizerSubject is a quantizer under test.
type QuantizerSubject = Subject[sdk.Site, spec.Quantizer]

// OptimizerSubject is an optimizer under test.
type OptimizerSubject = Subject[sdk.Tensor, spec.Optimizer]

// NewQuantizer is the subject for a quantizer in this process. Its programs are checked under the
// limits of a host.
func NewQuantizer(q sdk.Quantizer) QuantizerSubject {
	return QuantizerSubject{
		Search: func(site sdk.Site, in sdk.SearchInput) error {
			return q.(sdk.Searcher).Search(in, site) // its programs say that it searches
		},
		Describe: func() (sdk.Description, error) { return describe(q.Describe) },
		Programs: func(site sdk.Site) (spec.Quantizer, error) {
			out, err := sdk.BuildQuantizer(q, site)
			if err == nil {
				err = within(spec.SiteLimits(site.Shape), out.Programs())
			}
			return out, err
		},
	}
}

// NewOptimizer is the subject for an optimizer in this process; see [NewQuantizer].
func NewOptimizer(o sdk.Optimizer) OptimizerSubject {
	return OptimizerSubject{
		Step: func(tensor sdk.Tensor, in sdk.OpaqueStep) error {
			return o.(sdk.OpaqueOptimizer).Step(in, tensor) // as sdk.Opaque returns it
		},
		Describe: func() (sdk.Description, error) { return describe(o.Describe) },
		Programs: func(tensor sdk.Tensor) (spec.Optimizer, error) {
			out, err := sdk.BuildOptimizer(o, tensor)
			if err == nil {
				err = within(spec.TensorLimits(tensor.Shape), out.Programs())
			}
			return out, err
		},
	}
}

// within checks programs under limits. Which of them may factorize is checked elsewhere.
func within(limits program.Limits, programs iter.Seq2[string, *program.Program]) error {
	limits.Linalg = true
	for name, p := range programs {
		if err := p.Validate(limits); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func describe(f func() sdk.Description) (d sdk.Description, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in Describe: %v", r)
		}
	}()
	return f(), nil
}

// Machine executes programs. The reference implementation is always there; a host adds its device,
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

// samePrograms fails unless two answers to one request are the same.
func samePrograms(t *trial, e example, first, second iter.Seq2[string, *program.Program]) {
	a, b := spec.Hashes(first), spec.Hashes(second)
	for name := range b {
		if a[name] != b[name] {
			t.failf(e, "a second request gives another %s program", name)
		}
	}
	for name := range a {
		if b[name] == "" {
			t.failf(e, "a second request gives no %s program", name)
		}
	}
}
