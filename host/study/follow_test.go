package study_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/lease"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestFollow: what others train is reported as it ends, each cell once, with the machine of those that run.
func TestFollow(t *testing.T) {
	t.Setenv(lease.MachineVariable, "node3")
	s := manyCells(t)
	var ended, running []string
	var last console.Progress
	f := s.Follow(func(p console.Progress) {
		if last = p; p.Ended != nil {
			ended = append(ended, p.Ended.Label+" "+p.Ended.State)
		}
		running = nil
		for _, a := range p.Running {
			running = append(running, a.Label)
		}
	})
	look := func(want study.Outcome, what ...string) {
		t.Helper()
		ended = nil
		out, err := f.Look("array 7")
		if err != nil || out != want || last.Done != want.Done || last.Failed != want.Failed || last.Total != 12 || last.Note != "array 7" {
			t.Errorf("%+v, %v, want %+v; shown: %+v", out, err, want, last)
		}
		if diff := cmp.Diff(what, ended); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
	}
	o := study.RunOptions{Command: []string{"sh", "-c", "set -- \"$1\" --fail\n" + trainer, "sh"}, Share: true}
	o.Only = map[string][]string{"seed": {"0"}}
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	look(study.Outcome{Cells: 12, Done: 1, Missing: 11}) // what has ended before is not told
	o.Only = map[string][]string{"seed": {"1", "2"}}
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	claim, err := lease.Take(vfs.At(s.Out), s.Cells[3].ID)
	if err != nil {
		t.Fatal(err)
	}
	look(study.Outcome{Cells: 12, Done: 2, Failed: 1, Running: 1, Missing: 8}, "1 failed", "2 done")
	if !slices.Equal(running, []string{"3 on node3"}) || last.Running[0].Began.IsZero() {
		t.Errorf("running: %q, %+v", running, last.Running)
	}
	if r := results(t, s)[3]; r.State != study.Running || !strings.HasPrefix(r.Holder.Text(r.Holder.Since), "node3 since ") {
		t.Errorf("%+v", r)
	}
	if err := claim.Unlock(); err != nil {
		t.Fatal(err)
	}
	o.Only, o.Retry, o.Command[2] = nil, true, trainer
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	var rest []string
	for _, c := range s.Cells[3:] {
		rest = append(rest, s.Label(c)+" done")
	}
	look(study.Outcome{Cells: 12, Done: 12}, append([]string{"1 done"}, rest...)...)
	look(study.Outcome{Cells: 12, Done: 12})
}
