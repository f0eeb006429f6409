package study

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

func cells(t *testing.T, study vfs.Path) map[string]Holder {
	t.Helper()
	all, err := Holders(study)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestClaims checks that a cell is held by the process that has claimed it, until it is released.
func TestClaims(t *testing.T) {
	testlevel.Long(t, "it waits for leases to end")
	t.Setenv("SLURMD_NODENAME", "node3")
	t.Setenv("SLURM_ARRAY_JOB_ID", "17")
	t.Setenv("SLURM_ARRAY_TASK_ID", "4")
	study := vfs.At(t.TempDir())
	if all := cells(t, study); len(all) != 0 {
		t.Errorf("%v", all)
	}
	before := time.Now()
	s := &Study{Out: study.Name}
	release, err := s.claim(t.Context(), "a", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.claim(t.Context(), "a", false, nil); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	all := cells(t, study)
	h := all["a"]
	if len(all) != 1 || h.Machine != "node3" || h.Task != "17_4" || h.Process != os.Getpid() ||
		h.Since.Before(before) || time.Since(h.Since) > time.Minute {
		t.Errorf("%+v", all)
	}
	// A process whose claim is not written yet, or is invalid, holds the cell all the same.
	for _, text := range []string{"", "{", "[]", strings.Repeat(" ", 1<<20)} {
		if err := os.WriteFile(claimFile(study, "a").Name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if all := cells(t, study); len(all) != 1 || all["a"] != (Holder{}) {
			t.Errorf("%.10q: %+v", text, all)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if all := cells(t, study); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// TestTornClaim checks that a cell can be claimed if a process was killed while it wrote its claim.
func TestTornClaim(t *testing.T) {
	s := &Study{Out: t.TempDir()}
	claim := func() error {
		release, err := s.claim(t.Context(), "a", false, nil)
		if err != nil {
			return err
		}
		return release()
	}
	if err := claim(); err != nil {
		t.Fatal(err)
	}
	file := claimFile(s.at(), "a").Name
	whole, err := os.ReadFile(file)
	if err != nil || len(whole) < 40 {
		t.Fatalf("%q, %v", whole, err)
	}
	for n := range whole {
		if err := errors.Join(os.WriteFile(file, whole[:n], 0o644), claim()); err != nil {
			t.Errorf("%q: %v", whole[:n], err)
		}
	}
	foreign := []byte(`{"mine": 1}`)
	if err := os.WriteFile(file, foreign, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := claim(); err == nil {
		t.Errorf("%s was overwritten", foreign)
	}
}

func ExampleHolder_Text() {
	now := time.Date(2026, 11, 26, 13, 0, 0, 0, time.Local)
	h := Holder{Machine: "node3", Process: 5, Since: now.Add(-time.Minute)}
	fmt.Println(h.Text(now))
	h.Task = "17_4"
	fmt.Println(h.Text(now.AddDate(0, 0, 1)))
	fmt.Println(Holder{}.Text(now))
	// Output:
	// node3 since 12:59:00
	// node3 since 2026-11-26 12:59, task 17_4
	// a machine that is not known yet
}
