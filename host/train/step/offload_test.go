package step_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/pjrtrecord"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// offload is the setting that keeps states in the machine's memory.
const offload = `device.offload="states"`

// TestShardsOffloaded: states in the machine's memory change losses and states by rounding alone, in one program and in several, with what optimizers
// renew, and where several GPUs divide them. They take a checkpoint of a training without, bit for bit.
func TestShardsOffloaded(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU has no memory but the machine's")
	}
	const recompute, late = `train.recompute="blocks"`, `optimizer={plugin="soap", refresh_delay=2}`
	for _, tt := range []struct {
		name       string
		count      int
		dispatch   step.Dispatch
		accumulate int
		overrides  []string
		always     bool
	}{
		{"quest, adamw", 1, step.Single, 1, []string{`quantizer={plugin="quest"}`}, true},
		{"quest, adamw, a chain", 1, step.Chain, 2, []string{`quantizer={plugin="quest"}`, recompute}, true},
		{"quest, adamw, averaged", 1, step.Single, 1, []string{`quantizer={plugin="quest"}`, `train.average="uniform"`}, true},
		{"lsq, muon", 1, step.Single, 2, []string{`quantizer={plugin="lsq"}`, `optimizer={plugin="muon"}`}, false},
		{"quest, shampoo", 1, step.Single, 1, []string{`quantizer={plugin="quest"}`, `optimizer={plugin="shampoo"}`}, false},
		{"quest, soap, late", 1, step.Single, 1, []string{`quantizer={plugin="quest"}`, late}, true},
		{"quest, adamw, 2 GPUs", 2, step.Single, 1, []string{`quantizer={plugin="quest"}`}, false},
		{"quest, adamw, states of 2 GPUs", 2, step.Single, 1, []string{`quantizer={plugin="quest"}`, `device.shard="states"`}, true},
		{"quest, soap, all of 2 GPUs", 2, step.Single, 1, []string{`quantizer={plugin="quest"}`, late, `device.shard="full"`}, false},
	} {
		if !tt.always && !testlevel.All() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			here := onReplicas(t, tt.count, tt.dispatch, tt.accumulate, tt.overrides)
			there := onReplicas(t, tt.count, tt.dispatch, tt.accumulate, append([]string{offload}, tt.overrides...))
			sameBits(t, "at the start", testrun.Download(t, here.Compiled, here.State), testrun.Download(t, there.Compiled, there.State))
			for i := range 4 {
				s, err := there.Upload(loaded(testrun.Tensors(t, here.Compiled, here.State)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				there.State = s
				sameBits(t, fmt.Sprint("a checkpoint before step ", i+1), testrun.Download(t, here.Compiled, here.State), testrun.Download(t, there.Compiled, there.State))
				want := shardStep(t, here, tt.count, i)
				sameStep(t, shardStep(t, there, tt.count, i), want)
				most := 1e-6 // XLA joins other operations, of which some then round once less
				if strings.Contains(tt.name, "soap") {
					most = 1e-3 // where a gradient has no rank, the basis turns rounding into a direction of full length
				}
				sameState(t, fmt.Sprint("step ", i+1), testrun.Tensors(t, there.Compiled, there.State), testrun.Tensors(t, here.Compiled, here.State), most)
			}
			for name, b := range there.State.Tensors {
				if want := strings.HasPrefix(name, "state/") && b.Shape().Rank() > 1; b.InHost() != want {
					t.Errorf("%s is in the machine's memory: %t, want %t", name, b.InHost(), want)
				}
			}
		})
	}
}

var (
	argument  = regexp.MustCompile(`%(\w+): tensor<[^>]*>(?: \{([^}]*)\})?`)
	aliasing  = regexp.MustCompile(`tf\.aliasing_output = (\d+)`)
	placedOut = regexp.MustCompile(`tensor<[^>]*>(?: \{([^}]*)\})?`)
)

// TestOffloadedProgram: in the program of a step exactly the states that are matrices are in the machine's memory, before and after; each
// may be replaced in its place; and nothing reads one before it is fetched, after gradients and the update before it have been computed.
func TestOffloadedProgram(t *testing.T) {
	dev, r, err := pjrtrecord.Open(t, 1, engine.Options{Offload: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `quantizer={plugin="quest"}`, `device.kind="cuda"`, offload)
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = step.Single
	c := compileOn(t, dev, plan)
	if err := c.Prepare(false); err != nil {
		t.Fatal(err)
	}
	matrices := 0
	for _, rule := range plan.Rules {
		for _, s := range rule.State() {
			if len(s.Shape) > 1 {
				matrices++
			}
		}
	}
	programs := 0
	for _, program := range r.Programs(t) {
		if !strings.HasPrefix(program, "module @step") {
			continue
		}
		programs++
		inputs, rest, _ := strings.Cut(program[strings.Index(program, "@main("):], ") -> ")
		outputs, body, _ := strings.Cut(rest, " {\n")
		results := placedOut.FindAllStringSubmatch(outputs, -1)
		var inHost []string
		for _, a := range argument.FindAllStringSubmatch(inputs, -1) {
			replaced := aliasing.FindStringSubmatch(a[2])
			placed := strings.Contains(a[2], "pinned_host")
			if replaced == nil {
				if placed {
					t.Errorf("%s is in the machine's memory, and is not replaced there", a[1])
				}
				continue
			}
			i, err := strconv.Atoi(replaced[1])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(results[i][1], "pinned_host") != placed {
				t.Errorf("%s and the output in its place are in different memories", a[1])
			}
			if placed {
				inHost = append(inHost, a[1])
			}
		}
		if n := strings.Count(outputs, "pinned_host"); len(inHost) != matrices || n != matrices {
			t.Errorf("%d inputs and %d outputs are in the machine's memory, want %d", len(inHost), n, matrices)
		}
		for _, name := range inHost {
			for line := range strings.Lines(body) {
				if strings.Contains(line, "(%"+name+",") && !strings.Contains(line, "optimization_barrier") || strings.Contains(line, " %"+name+",") || strings.Contains(line, "%"+name+")") {
					t.Errorf("%s is read by %s", name, line)
				}
			}
		}
	}
	if programs == 0 {
		t.Fatal("there is no step")
	}
}
