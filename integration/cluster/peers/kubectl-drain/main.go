// SPDX-License-Identifier: Apache-2.0

// The unchanged `kubectl drain` of the release that go.mod pins, without the rest of kubectl.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/drain"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	flags := genericclioptions.NewConfigFlags(true)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	command := drain.NewCmdDrain(cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(flags)), streams)
	flags.AddFlags(command.PersistentFlags())
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
