package train_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/processes"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestProcessesRefuse checks that processes that do not fit together end before training, all with
// the reason.
func TestProcessesRefuse(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	one := testrun.Config(t)
	another := testrun.Again(t, one, "schedule.rate=1e-3")
	for want, c := range map[string][2]*config.Config{
		"processes 0 and 1 do not have the same configuration": {one, another},
		"device.count: found 1 with 2 processes":               {one, one},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		var errs [2]error
		var wait sync.WaitGroup
		for rank := range errs {
			wait.Go(func() {
				group, err := processes.Join(t.Context(),
					processes.Position{Rank: rank, Size: 2, Address: address, Local: -1},
					processes.Run{Dir: vfs.At(c[rank].Train.Out)})
				if err == nil {
					_, err = train.Run(t.Context(), c[rank],
						train.Options{Finder: testrun.Finder(t), Processes: group})
					group.Leave(err)
				}
				errs[rank] = err
			})
		}
		wait.Wait()
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("process %d ends with %v, want %q", rank, err, want)
			}
		}
	}
}
