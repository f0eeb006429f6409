package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/serve"
)

// defaultListen is the default address. The port is fixed, so that an open page reconnects after a
// restart of the server.
const defaultListen = "127.0.0.1:7170"

func newServe() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve [DIR...]",
		Short: "Show runs in a web browser while they train",
		Long: `Serve web pages that show the runs below the given directories, by default runs and
studies: a table to filter and sort, and curves that are updated while runs train
(docs/guide/live-pages.md). It serves until Ctrl-C.

By default, only this machine can reach the pages; with --listen, everybody who can reach
the address sees the runs. The pages load nothing from other servers.`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", defaultListen,
		"`ADDRESS` and port of the pages; port 0: any free port")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, dir := range args {
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return fmt.Errorf("there is no directory %s", dir)
			}
		}
		if len(args) == 0 {
			args = roots
		}
		return serveRuns(cmd, listen, args)
	}
	return cmd
}

func serveRuns(cmd *cobra.Command, listen string, dirs []string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return usagef("--listen %s: %w; want an address and a port, such as %s",
			listen, err, defaultListen)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w; port 0 selects a free port", listen, err)
	}
	address := l.Addr().(*net.TCPAddr)
	if !address.IP.IsLoopback() {
		fmt.Fprintf(cmd.ErrOrStderr(), "everybody who can reach %s can see these runs\n", l.Addr())
	}
	server := &http.Server{
		Handler:           serve.New(host, dirs...).Handler(),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	if address.IP.IsUnspecified() {
		host = "127.0.0.1" // the server listens on all addresses; this one works in a local browser
	}
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s/\n", net.JoinHostPort(host, fmt.Sprint(address.Port)))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-cmd.Context().Done():
	}
	// The timeout is short, because pages repeat their requests.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
