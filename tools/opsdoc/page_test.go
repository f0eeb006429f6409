package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk/program"
)

const published = "../../docs/reference/operations.md"

func TestPublishedPageIsUpToDate(t *testing.T) {
	want, err := page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(published)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/reference/operations.md is out of date: run go generate ./sdk/program\n%s", diff)
	}
}

func TestEveryOperationHasOneRow(t *testing.T) {
	text, err := page()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range program.Ops() {
		if n := strings.Count(string(text), fmt.Sprintf("\n| %d | `%s` | ", info.Op, info.Name)); n != 1 {
			t.Errorf("%s has %d rows", info.Name, n)
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") || !strings.Contains(line, "` | ") {
			continue
		}
		if cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); cells != 4 && cells != 6 {
			t.Errorf("a row of %d cells: %s", cells-1, line)
		}
	}
}

func TestPower(t *testing.T) {
	for n, want := range map[int64]string{1 << 36: "2³⁶", 1<<31 - 1: "2³¹−1", 100: "100"} {
		if got := power(n); got != want {
			t.Errorf("power(%d) = %s, want %s", n, got, want)
		}
	}
}
