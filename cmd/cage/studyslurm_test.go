package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestQueue: what squeue says of the tasks of an array.
func TestQueue(t *testing.T) {
	q := readQueue("CLUSTER: here\n0|COMPLETED|None\n1|RUNNING|None\n2|PENDING|Resources\n3|PENDING|Priority\n4|PENDING|JobHeldUser\n5|PENDING|launch failed requeued held\n6|COMPLETING|None\n7|CANCELLED|None\n8|PREEMPTED|None\n9|PENDING|None\n")
	if got, want := q.String(), "1 completing, 2 held (JobHeldUser, launch failed requeued held), 3 pending (Priority, Resources), 1 running"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var open []int
	for _, t := range q.open() {
		open = append(open, t.index)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6, 9}, open); diff != "" {
		t.Errorf("tasks that have not ended (-want +got):\n%s", diff)
	}
	if got := q.held().String(); got != "2 held (JobHeldUser, launch failed requeued held)" {
		t.Errorf("%q", got)
	}
}

// TestArrays: numbers of jobs, and what is none.
func TestArrays(t *testing.T) {
	for said, want := range map[string]array{"17": {job: "17"}, "17;far": {"17", "far"}, "": {}, "Submitted batch job 17": {}, "-1": {}, "17_3": {}} {
		if got := arrayOf(said); got != want {
			t.Errorf("%q: %v, want %v", said, got, want)
		}
	}
}
