// Package campaign kills the cage command in the middle of everything that it does to
// files, and finds out whether anything was lost.
//
// For each scenario (a training, a study, the preparation of data) it counts the system
// calls that change a kept file in an undisturbed run, and then runs the scenario once for
// each of them and kills it there: the process that makes the call or all of them, before
// the call or in the middle of its write. What is on disk must be whole; the same command,
// given again as the documentation says, must end well; and all files must then be those
// of the undisturbed run, to the bit, but for times.
//
// Scenarios and what must hold live here. How a process is stopped at a system call is
// the business of package trap.
package campaign
