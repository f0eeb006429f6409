package report_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/study/snapshot"
)

const costly = base + `
[study]
out = '%s'
[[study.axes]]
name = "method"
values = [
  {label = "dear", set = {"method.lambda" = 1.0}},
  {label = "cheap"},
  {label = "bad", set = {"method.lambda" = 3.0}},
  {label = "made", init = {method = "cheap"}, set = {"method.lambda" = 4.0}},
]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2]
[[study.evaluations]]
reference = "MODEL"
[[study.tables]]
title = "KL"
metric = "kl"
rows = ["method"]
over = ["seed"]
baseline = {method = "dear"}
also = ["agreement", "seconds", "peak_memory_bytes"]
cost = "seconds"
`

// Stand-ins for training, which has a cost, and for cage eval.
const (
	costlyTraining = `dir=$(dirname "$1"); case "$dir" in *dear*) s=1000;; *bad*) s=1;; *made*) s=20;; *) s=10;; esac
echo '{"completed": true, "seconds": '$s', "peak_memory_bytes": 21'$s'000000}' > "$dir/summary.json"; echo '{}' > "$dir/provenance.json"`
	costlyAnswers = `case "$2" in *dear-0*) k=0.10;; *dear-1*) k=0.11;; *dear-2*) k=0.12;; *cheap-0*) k=0.105;; *cheap-1*) k=0.108;;
*cheap-2*) k=0.125;; *made-0*) k=0.097;; *made-1*) k=0.118;; *made*) k=0.122;; *bad-0*) k=0.5;; *bad-1*) k=0.52;; *) k=0.49;; esac
echo '{"kl": '$k', "agreement": 0.5, "sequences": {"kl": [0, '$k'], "agreement": [0.5, 0.5]}}'`
)

// costs runs the study with stand-ins, and returns the report with the given seeds.
func costs(t *testing.T, seeds ...string) *report.Report {
	t.Helper()
	model, err := filepath.Abs("../../model/huggingface/testdata/llama32")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, strings.Replace(costly, "MODEL", model, 1), filepath.Join(t.TempDir(), "out"))
	out, err := study.Run(t.Context(), s, study.RunOptions{Only: map[string][]string{"seed": seeds},
		Command: []string{"sh", "-c", costlyTraining, "sh"},
		Tool:    []string{"sh", "-c", costlyAnswers, "sh"}})
	if err != nil || out.Failed > 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	return reportOf(t, s)
}

// TestConclusion checks that the overview has all metrics, with costs that include those of the
// model that a cell starts from, and names the cheapest method that is not told apart from the
// best; with two seeds it cannot.
func TestConclusion(t *testing.T) {
	r := costs(t, "0", "1", "2")
	want := "The cheapest within an interval of the best, dear (0.110, 1000 seconds of training), is " +
		"cheap (0.113, 10 seconds of training), with a difference of +0.003 [−0.007, +0.013]."
	if got := r.Tables[0].Conclusion; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	text := string(r.Markdown())
	for _, line := range []string{
		"| cheap | +0.003 [−0.007, +0.013] (items [0.000, +0.003]) |",
		"## Overview: KL",
		"| method | KL divergence, nats | share of equal likeliest tokens | seconds of training | " +
			"peak memory, GB |",
		"| dear | 0.110 ± 0.010 | 0.5000 ± 0.0000 | 1000.00 ± 0.00 | 211.000 ± 0.000 |",
		"| made | 0.112 ± 0.013 | 0.5000 ± 0.0000 | 30.00 ± 0.00 | 2.120 ± 0.000 |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the report lacks %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	two := "It cannot be told which is the cheapest within an interval of the best: that needs three " +
		"replicates, and the best so far, dear, has 2."
	if got := costs(t, "0", "1").Tables[0].Conclusion; got != two {
		t.Errorf("with two seeds: %s", got)
	}
}

// TestKeptCosts checks that kept results have the costs that a table asks for, and no other times.
func TestKeptCosts(t *testing.T) {
	s := parse(t, strings.Replace(costly, `"MODEL"`, `"../../model/huggingface/testdata/llama32"`, 1),
		filepath.Join(t.TempDir(), "out"))
	results := []study.Result{}
	for _, c := range s.Cells {
		run(t, c, 1, 0)
		write(t, c.Dir, "run.toml", string(c.Config.Encode()))
		results = append(results, study.Result{Cell: c, State: study.Done, Summary: map[string]float64{
			"val_loss": 1, "seconds": 5, "processor_seconds": 6, "start_seconds": 7}})
	}
	kept, err := snapshot.Collect(s, results, nil, "r", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, other := kept.Cells[0].Metrics["start_seconds"]
	_, unasked := kept.Cells[0].Metrics["processor_seconds"]
	if kept.Cells[0].Metrics["seconds"] != 5 || other || unasked {
		t.Errorf("kept are %v", kept.Cells[0].Metrics)
	}
}

// TestCostMistakes checks that a cost must be one that the overview shows.
func TestCostMistakes(t *testing.T) {
	for change, want := range map[string]string{
		`cost = "seconds">cost = "processor_seconds"`:    "which also has",
		`cost = "seconds">cost = "agreement"`:            "which also has",
		`"agreement", "sec>"agreemint", "sec`:            `there is no metric "agreemint"`,
		`cost = "sec>better = "none"` + "\ncost = \"sec": "a direction in better",
	} {
		old, new, _ := strings.Cut(change, ">")
		_, err := study.Parse("study.toml", []byte(strings.Replace(costly, old, new, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}
