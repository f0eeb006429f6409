package engine_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/internal/effort"
)

// watchdogVariable tells the test binary to be the subprocess of TestManyBranchesDoNotHang.
const watchdogVariable = "CAGE_ENGINE_WATCHDOG"

// TestManyBranchesDoNotHang runs graphs with far more parallel branches than workers, where releases of the Go backend
// have deadlocked. It does so in a subprocess, so that a hang fails this test and not the whole suite. The limit is far
// above the second or so that the work takes, because the machine may be busy.
func TestManyBranchesDoNotHang(t *testing.T) {
	if os.Getenv(watchdogVariable) != "" {
		runManyBranches(t)
		return
	}
	effort.Long(t, "it starts a process with many steps")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestManyBranchesDoNotHang$")
	cmd.Env = append(os.Environ(), watchdogVariable+"=1")
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the step hangs; output so far:\n%s", output)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func runManyBranches(t *testing.T) {
	for _, threads := range []int{0, 1, 2} {
		d, err := engine.Open(device.CPU, engine.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(32, 48)}}, manyBranches(64))
		x := testdevice.Upload(t, d, make([]float32, 32*48), 32, 48)
		for range 30 {
			if err := engine.FinalizeAll(run(t, e, x)...); err != nil {
				t.Fatal(err)
			}
		}
	}
}
