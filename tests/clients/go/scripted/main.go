// An application's use of libraries on go-redis whose work is done by scripts: redsync's locks, redis_rate's limits.
// Usage: scripted PORT PASSWORD PROTOCOL CONTROL.
package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tern/clients/drive"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	ctx    = context.Background()
	client = redis.NewClient(&redis.Options{
		Addr: drive.Address, Password: drive.Password, Protocol: drive.Get(strconv.Atoi(drive.Protocol)), PoolSize: 20,
	})
	locks   = redsync.New(goredis.NewPool(client))
	limiter = redis_rate.NewLimiter(client)
)

// parallel runs the body in 20 goroutines.
func parallel(body func(n int)) {
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() { body(n) })
	}
	all.Wait()
}

// exclusion reads and then writes a counter 100 times.
func exclusion() {
	drive.Ok(client.Set(ctx, "counter", 0, 0).Err())
	var inside, collisions atomic.Int64
	parallel(func(int) {
		mutex := locks.NewMutex("lock", redsync.WithExpiry(60*time.Second), redsync.WithTries(20000), redsync.WithRetryDelay(5*time.Millisecond))
		for range 5 {
			drive.Ok(mutex.Lock())
			if inside.Add(1) != 1 {
				collisions.Add(1)
			}
			seen := drive.Get(client.Get(ctx, "counter").Int())
			drive.Ok(client.Set(ctx, "counter", seen+1, 0).Err())
			inside.Add(-1)
			drive.Equal(drive.Get(mutex.Unlock()), true)
		}
	})
	drive.Equal(drive.Get(client.Get(ctx, "counter").Int()), 100)
	drive.Equal(collisions.Load(), 0)
	drive.Equal(client.Exists(ctx, "lock").Val(), 0)
}

// lost: who has lost a lock neither unlocks nor extends it, whether it is another's or nobody's.
func lost() {
	first := locks.NewMutex("lost", redsync.WithExpiry(time.Second), redsync.WithTimeoutFactor(1))
	drive.Ok(first.Lock())
	drive.Until("the lock's end", func() bool { return client.Exists(ctx, "lost").Val() == 0 })
	extended, _ := first.Extend()
	drive.Equal(extended, false)
	unlocked, err := first.Unlock()
	drive.Equal(unlocked, false)
	drive.Equal(errors.Is(err, redsync.ErrLockAlreadyExpired), true)
	second := locks.NewMutex("lost", redsync.WithExpiry(60*time.Second))
	drive.Ok(second.Lock())
	var taken *redsync.ErrTaken
	drive.Equal(errors.As(first.TryLock(), &taken), true)
	unlocked, err = first.Unlock()
	drive.Equal(unlocked, false)
	drive.Equal(errors.As(err, &taken), true)
	drive.Equal(client.Get(ctx, "lost").Val(), second.Value())
	drive.Equal(drive.Get(second.Unlock()), true)
}

func extended() {
	mutex := locks.NewMutex("extended", redsync.WithExpiry(60*time.Second))
	drive.Ok(mutex.Lock())
	drive.Ok(client.PExpire(ctx, "extended", 5*time.Second).Err())
	drive.Equal(drive.Get(mutex.Extend()), true)
	drive.Equal(client.PTTL(ctx, "extended").Val() > 50*time.Second, true)
	drive.Equal(drive.Get(mutex.Unlock()), true)
	again := locks.NewMutex("extended", redsync.WithExpiry(60*time.Second), redsync.WithSetNXOnExtend(), redsync.WithValue("mine"))
	drive.Equal(drive.Get(again.Extend()), true)
	drive.Equal(client.Get(ctx, "extended").Val(), "mine")
}

// limits: of 200 calls exactly 50 are allowed, and each of them leaves another number.
func limits() {
	limit := redis_rate.Limit{Rate: 1, Burst: 50, Period: 24 * time.Hour}
	var allowed, refused atomic.Int64
	var left sync.Map
	parallel(func(int) {
		for range 10 {
			result := drive.Get(limiter.Allow(ctx, "ann", limit))
			if result.Allowed == 1 {
				allowed.Add(1)
				_, seen := left.LoadOrStore(result.Remaining, true)
				drive.Equal(seen, false)
			} else {
				refused.Add(1)
				drive.Equal(result.RetryAfter > 23*time.Hour && result.RetryAfter <= 24*time.Hour, true)
			}
		}
	})
	drive.Equal([]int64{allowed.Load(), refused.Load()}, []int64{50, 150})
	drive.Equal(client.TTL(ctx, "rate:ann").Val() > 49*24*time.Hour, true)
	drive.Ok(limiter.Reset(ctx, "ann"))
	drive.Equal(drive.Get(limiter.AllowN(ctx, "ann", limit, 51)).Allowed, 0)
	for _, expected := range []int{30, 20, 0} {
		drive.Equal(drive.Get(limiter.AllowAtMost(ctx, "ann", limit, 30)).Allowed, expected)
	}
}

// refills: what is left comes back with the server's clock.
func refills() {
	limit := redis_rate.Limit{Rate: 2, Burst: 2, Period: 2 * time.Second}
	drive.Equal(drive.Get(limiter.AllowN(ctx, "eve", limit, 2)).Allowed, 2)
	since := time.Now()
	allowed := 0
	for end := since.Add(20 * time.Second); allowed < 3 && time.Now().Before(end); {
		result := drive.Get(limiter.Allow(ctx, "eve", limit))
		allowed += result.Allowed
		if result.Allowed == 0 {
			drive.Equal(result.RetryAfter > 0 && result.RetryAfter <= time.Second, true)
			time.Sleep(result.RetryAfter)
		}
	}
	drive.Equal(allowed, 3)
	drive.Equal(time.Since(since) > 2800*time.Millisecond, true)
}

// startingAgain: a new server has no scripts, but the lock and what was taken.
func startingAgain() {
	limit := redis_rate.Limit{Rate: 1, Burst: 50, Period: 24 * time.Hour}
	drive.Equal(drive.Get(limiter.AllowN(ctx, "kept", limit, 20)).Remaining, 30)
	mutex := locks.NewMutex("kept", redsync.WithExpiry(300*time.Second))
	drive.Ok(mutex.Lock())
	drive.Restart()
	drive.Until("an answer", func() bool { return client.Ping(ctx).Err() == nil })
	drive.Equal(drive.Get(limiter.AllowN(ctx, "kept", limit, 25)).Remaining, 5)
	drive.Equal(locks.NewMutex("kept").TryLock() != nil, true)
	drive.Equal(drive.Get(mutex.Unlock()), true)
}

func main() {
	drive.Run("go-redis", []drive.Case{
		{"exclusion", exclusion}, {"lost", lost}, {"extended", extended}, {"limits", limits}, {"refills", refills},
		{"starting_again", startingAgain},
	})
}
