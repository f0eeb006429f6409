package main

import (
	"io"
	"os"
	"time"
)

// lastChance is how long the command may take to end after its lifeline has.
const lastChance = time.Minute

// hangOn interrupts this process when in comes to its end: the program that holds the
// other end wants it to stop, or is no more.
func hangOn(in io.Reader) {
	_, _ = io.Copy(io.Discard, in)
	self, err := os.FindProcess(os.Getpid())
	if err != nil || self.Signal(os.Interrupt) != nil {
		os.Exit(exitInterrupted)
	}
	time.Sleep(lastChance)
	os.Exit(exitInterrupted)
}
