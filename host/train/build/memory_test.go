package build_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// compiled is what XLA says of the memory of a step for an H200, in bytes; testdata/memory/compile.py writes it.
type compiled struct {
	Set                     []string
	State, Temporary, Other float64
}

// TestEstimateOfGPU: the estimate for GPUs is within 6 % of each of these steps, and what is there between the steps, which is most
// of a large model, is exact.
func TestEstimateOfGPU(t *testing.T) {
	file, err := os.Open("testdata/memory/compiled.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const within = 0.06
	finder, worst := testrun.Finder(t), 0.0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c compiled
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load("testdata/memory/base.toml", c.Set)
		if err != nil {
			t.Fatal(err)
		}
		m := modelOf(t, cfg)
		programs, err := build.Collect(t.Context(), build.Request{Config: cfg, Model: m, Batch: cfg.Train.Batch, Finder: finder})
		if err != nil {
			t.Fatal(err)
		}
		report, err := build.EstimateOf(cfg, m, programs, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, state := c.State+c.Temporary+c.Other, 0.0
		for _, p := range report.Parts {
			if p.What == "parameters" || p.What == "states of the optimizer" {
				state += p.Bytes
			}
		}
		if math.Abs(state/c.State-1) > 0.01 {
			t.Errorf("%q: parameters and states are %s, by XLA %s", c.Set, build.Bytes(state), build.Bytes(c.State))
		}
		off := report.Bytes/want - 1
		worst = max(worst, math.Abs(off))
		t.Logf("%+5.1f %% of %-8s %q", 100*off, build.Bytes(want), c.Set)
		if math.Abs(off) > within || report.Accuracy != build.AccuracyOnGPU {
			t.Errorf("%q: %s, by XLA %s, which is off by %.0f %%", c.Set, build.Bytes(report.Bytes), build.Bytes(want), 100*off)
		}
	}
	t.Logf("the worst is off by %.0f %%", 100*worst)
}

// TestRecomputeAuto: what is computed again is the least with which there is enough memory.
func TestRecomputeAuto(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `train.recompute="auto"`)
	m := modelOf(t, cfg)
	programs, err := build.Collect(t.Context(), build.Request{Config: cfg, Model: m, Batch: cfg.Train.Batch, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	need := map[architecture.Recompute]int64{}
	for _, recompute := range []architecture.Recompute{architecture.RecomputeNone, architecture.RecomputeAttention} {
		report, err := build.EstimateOf(testrun.Again(t, cfg, fmt.Sprintf("train.recompute=%q", recompute)), m, programs, nil)
		if err != nil {
			t.Fatal(err)
		}
		need[recompute] = int64(report.Bytes)
	}
	for _, tt := range []struct {
		available *build.Available
		want      architecture.Recompute
	}{
		{nil, architecture.RecomputeNone},
		{&build.Available{Bytes: need[architecture.RecomputeNone] + 1}, architecture.RecomputeNone},
		{&build.Available{Bytes: need[architecture.RecomputeNone] - 1}, architecture.RecomputeAttention},
		{&build.Available{Bytes: need[architecture.RecomputeAttention] - 1}, architecture.RecomputeBlocks},
		{&build.Available{Bytes: 1}, architecture.RecomputeBlocks},
	} {
		decided, _, err := build.Decide(cfg, m, programs, tt.available)
		if err != nil {
			t.Fatal(err)
		}
		if decided.Train.Recompute != tt.want || cfg.Train.Recompute != config.RecomputeAuto {
			t.Errorf("with %v: %q, want %q", tt.available, decided.Train.Recompute, tt.want)
		}
	}
}
