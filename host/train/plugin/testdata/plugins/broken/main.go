// Command broken is a plugin that does not compile.
package main

func main() { undefined.Serve() }
