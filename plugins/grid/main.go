package main

import "github.com/cage-qat/cage/sdk"

func main() { sdk.ServeQuantizer(grid{}) }
