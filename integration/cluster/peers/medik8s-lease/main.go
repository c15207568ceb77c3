// SPDX-License-Identifier: Apache-2.0

// The lease library of medik8s, unchanged, as a command: what node-maintenance- and node-healthcheck-operator call.
// It prints the lease or the error as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/medik8s/common/pkg/lease"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A clock that is ahead sees the times of others as older, and writes its own as later.
type clock struct {
	client.Client
	ahead time.Duration
}

func (c clock) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	move(obj, -c.ahead)
	return err
}

func (c clock) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	move(obj, c.ahead)
	return c.Client.Create(ctx, obj, opts...)
}

func (c clock) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	move(obj, c.ahead)
	return c.Client.Update(ctx, obj, opts...)
}

func move(obj client.Object, by time.Duration) {
	if found, ok := obj.(*coordination.Lease); ok {
		// Copies: in a new lease both are the same object.
		found.Spec.AcquireTime = moved(found.Spec.AcquireTime, by)
		found.Spec.RenewTime = moved(found.Spec.RenewTime, by)
	}
}

func moved(at *meta.MicroTime, by time.Duration) *meta.MicroTime {
	if at == nil {
		return nil
	}
	return &meta.MicroTime{Time: at.Add(by)}
}

func run() (*coordination.Lease, error) {
	holder := flag.String("holder", "", "")
	ahead := flag.Duration("ahead", 0, "how far ahead the clock of the holder is")
	dryRun := flag.Bool("dry-run", false, "write nothing")
	duration := flag.Duration("duration", time.Minute, "of the lease")
	flag.Parse()
	// The library has --kubeconfig.
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	var c client.Client
	if c, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, err
	}
	if *dryRun {
		c = client.NewDryRunClient(c)
	}
	manager, err := lease.NewManager(clock{c, *ahead}, *holder)
	if err != nil {
		return nil, err
	}
	node, ctx := &core.Node{}, context.Background()
	if err := c.Get(ctx, client.ObjectKey{Name: flag.Arg(1)}, node); err != nil {
		return nil, err
	}
	if flag.Arg(0) == "invalidate" {
		return nil, manager.InvalidateLease(ctx, node)
	}
	if err := manager.RequestLease(ctx, node, *duration); err != nil {
		return nil, err
	}
	return manager.GetLease(ctx, node)
}

func main() {
	found, err := run()
	answer := map[string]any{"lease": found}
	if err != nil {
		var held lease.AlreadyHeldError
		answer["error"] = err.Error()
		answer["held"] = errors.As(err, &held)
		answer["conflict"] = apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err)
	}
}
