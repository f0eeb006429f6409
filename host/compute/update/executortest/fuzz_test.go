package executortest_test

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/update/executortest"
	"github.com/cage-qat/cage/internal/randprog"
)

// FuzzExecutors lets the bytes decide on a program and its inputs, and runs it on all
// executors that are for its family. The first byte is the family.
func FuzzExecutors(f *testing.F) {
	for i := range byte(6) {
		f.Add([]byte{i, 7 * i, 200, 100, 50, 25, 12, 6, 3, 250, 130, 90})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		o := randprog.UpdateOptions{Family: randprog.Families[int(data[0])%len(randprog.Families)], Exact: data[0]/16%2 == 0}
		c := randprog.NewUpdate(randprog.Bytes(data[1:]), o)
		for name, s := range map[string]executortest.Subject{"tile": tileSubject, "slices": sliceSubject, "graph": graphSubject, "refresh": refreshSubject, "kernels": kernelSubject} {
			if _, ok := s.Accepts[o.Family]; !ok {
				continue
			}
			if _, err := s.Check([]randprog.Case{c}, o.Exact); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
