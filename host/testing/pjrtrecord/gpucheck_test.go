//go:build cuda

package pjrtrecord_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/testing/pjrtrecord"
)

// TestGPUCheck runs scripts/gpu-check.sh on simulated GPU machines, and checks that the report
// begins with remedies for what failed, and lists what has run.
func TestGPUCheck(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	parts := newParts(t)
	scripts, err := filepath.Abs("../../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpu-report.py", "predicted.json"} {
		copied(t, filepath.Join(scripts, name), filepath.Join(parts.pack, name))
	}
	const small = "CONTEXT=16 STEPS=1 SIZES=toy:1 "
	for _, c := range []struct {
		name, settings string
		inject         func(*machine)
		exit           int
		want           []string // in the report, in this order
	}{
		{"nothing", small + "PHASES=bench", func(*machine) {}, 0,
			[]string{"## What to do next", "1. ", "| toy-fused | 1 |", "| toy-graph | 1 |"}},
		{"an older driver", small + "PHASES=trials",
			func(m *machine) { m.set("FAKE_DRIVER", "12040 0 1") }, 3,
			[]string{"The device does not open", "1. The device does not open. What to do: ",
				"update the driver to 580"}},
		{"no libraries", small + "PHASES=trials", func(m *machine) { m.remove(t, "nvidia/cudnn") }, 3,
			[]string{"1. The device does not open. What to do: ", "libcudnn.so.9 is missing",
				"pip install nvidia-cudnn-cu13"}},
		{"kernels refused", small + "PHASES=trials,bench", func(m *machine) {
			m.set(pjrtrecord.FaultVariable, "compile|0|12|xla.gpu.triton|UNIMPLEMENTED: none of these")
		}, 1,
			[]string{"1. Kernels fail and graphs do not", "2. bench-toy-fused: ", "none of these",
				"## What cage does without", "none of these", "| toy-fused | - |", "| toy-graph | 1 |"}},
		{"out of memory", small + "PHASES=bench", func(m *machine) {
			m.set(pjrtrecord.FaultVariable, "execute|0|8|module @step|RESOURCE_EXHAUSTED: Out of memory")
		}, 1,
			[]string{"1. bench-toy-fused: ", "the GPU has too little memory", "2. bench-toy-graph: "}},
		{"a trial that ends the process", small + "PHASES=trials",
			func(m *machine) { m.set(pjrtrecord.FaultVariable, "compile|0|0|__cudnn$fmha|abort") }, 1,
			[]string{`1. The device works with ` + "`device.attention = \"plain\"`", "trials: "}},
		{"no time", small + "PHASES=trials,bench LIMIT=1", func(*machine) {}, 3,
			[]string{"No time was left for device", `PHASES="`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, parts)
			c.inject(m)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(scripts, "gpu-check.sh"))
			out := t.TempDir()
			cmd.Env = append(append(os.Environ(), "PACK="+parts.pack, "OUT="+out), m.environment...)
			for _, setting := range strings.Fields(c.settings) {
				cmd.Env = append(cmd.Env, strings.ReplaceAll(setting, ",", " "))
			}
			said, err := cmd.CombinedOutput()
			exit := (*exec.ExitError)(nil)
			got := 0
			if errors.As(err, &exit) {
				got = exit.ExitCode()
			}
			if got != c.exit || err != nil && exit == nil {
				t.Errorf("it ended with %v, want exit code %d:\n%s", err, c.exit, said)
			}
			text, err := os.ReadFile(filepath.Join(out, "report.md"))
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			rest := string(text)
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("the report does not say %q there:\n%s", want, text)
				}
				rest = after
			}
		})
	}
}

// TestGPUCheckEnds checks that the time limits of the stages leave time for the report.
func TestGPUCheckEnds(t *testing.T) {
	text, err := os.ReadFile("../../../scripts/gpu-check.sh")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`declare -A limits=\((.*)\)`).FindStringSubmatch(string(text))
	if list == nil {
		t.Fatal("there are no limits")
	}
	sum := 0
	for _, m := range regexp.MustCompile(`\]=(\d+)`).FindAllStringSubmatch(list[1], -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	const most = 570
	if sum == 0 || sum > most {
		t.Errorf("the limits sum to %d seconds, want at most %d", sum, most)
	}
}
