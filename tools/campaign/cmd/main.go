// Command cmd runs the crash campaign of package campaign against a built cage:
//
//	make build && go run ./tools/campaign/cmd
//
// It can be stopped at any moment; the same command then continues. At the end it prints
// tables of what was done, and exits with code 1 if anything was lost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cage-qat/cage/tools/campaign"
	"github.com/cage-qat/cage/tools/trap"
)

func main() {
	trap.Launch()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	switch {
	case errors.Is(err, trap.ErrUnsupported):
		fmt.Println("crash campaign: skipped:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "crash campaign:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := campaign.Options{Out: os.Stdout}
	flag.StringVar(&o.Cage, "cage", "bin/cage", "the executable to kill, with its plugins beside it")
	flag.StringVar(&o.Dir, "dir", "campaign", "directory of results and of what failed")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of how each kill is done, and of their order")
	flag.IntVar(&o.Rounds, "rounds", 1, "experiments at each system call, which differ in how the kill is done")
	flag.DurationVar(&o.For, "for", 0, "begin no experiment later than this; 0: do all")
	flag.IntVar(&o.Parallel, "parallel", 2, "experiments at once")
	flag.StringVar(&o.Only, "only", "", "`SCENARIO[:ROUND[:CALL]]`, as failures are printed")
	flag.Parse()
	var err error
	if o.Cage, err = filepath.Abs(o.Cage); err != nil {
		return err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	records, err := campaign.Run(ctx, o, campaign.Scenarios())
	if len(records) > 0 {
		campaign.Summarize(os.Stdout, records)
	}
	return err
}
