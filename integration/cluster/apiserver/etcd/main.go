// SPDX-License-Identifier: Apache-2.0

// The unchanged etcd server of the release that the API server's own go.mod asks for.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
