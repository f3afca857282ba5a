package main

import (
	"math"

	"tern/clients/drive"

	"github.com/redis/rueidis"
)

func collections() {
	client := connect()
	defer client.Close()
	drive.Ok(do(client, "FLUSHALL").Error())
	aHash(client, client.B())
	aQueue(client, client.B())
	aLeaderboard(client, client.B())
	aMap(client, client.B())
}

// nothing lets a call that blocks end unserved.
func nothing[T any](call func(float64) (T, error)) {
	_, err := call(0.1)
	drive.Equal(rueidis.IsRedisNil(err), true)
}

func aHash(client rueidis.Client, b rueidis.Builder) {
	user := b.Hset().Key("user").FieldValue().FieldValue("name", "Ann").FieldValue("city", "Rome").FieldValue("visits", "5")
	drive.Equal(drive.Get(client.Do(ctx, user.Build()).AsInt64()), 3)
	all := func() map[string]string { return drive.Get(client.Do(ctx, b.Hgetall().Key("user").Build()).AsStrMap()) }
	drive.Equal(all(), map[string]string{"name": "Ann", "city": "Rome", "visits": "5"})
	drive.Equal(drive.Get(client.Do(ctx, b.Hincrby().Key("user").Field("visits").Increment(3).Build()).AsInt64()), 8)
	drive.Equal(drive.Get(client.Do(ctx, b.Hdel().Key("user").Field("city", "none").Build()).AsInt64()), 1)
	expire := b.Hpexpire().Key("user").Milliseconds(20).Fields().Numfields(2).Field("visits", "none").Build()
	drive.Equal(drive.Get(client.Do(ctx, expire).AsIntSlice()), []int64{1, -2})
	left := b.Httl().Key("user").Fields().Numfields(1).Field("name").Build()
	drive.Equal(drive.Get(client.Do(ctx, left).AsIntSlice()), []int64{-1})
	drive.Until("an expired field", func() bool { return len(all()) == 1 })
}

func aQueue(client rueidis.Client, b rueidis.Builder) {
	push := func(elements ...string) rueidis.RedisResult {
		return client.Do(ctx, b.Rpush().Key("queue").Element(elements...).Build())
	}
	pushes := func() error { return push("c").Error() }
	pops := func(seconds float64) ([]string, error) {
		return client.Do(ctx, b.Blpop().Key("none", "queue").Timeout(seconds).Build()).AsStrSlice()
	}
	moves := func(seconds float64) (string, error) {
		move := b.Blmove().Source("queue").Destination("working").Left().Right().Timeout(seconds)
		return client.Do(ctx, move.Build()).ToString()
	}
	drive.Equal(drive.Get(push("a", "b").AsInt64()), 2)
	drive.Equal(drive.Get(client.Do(ctx, b.Lpop().Key("queue").Build()).ToString()), "a")
	drive.Equal(drive.Get(client.Do(ctx, b.Lrange().Key("queue").Start(0).Stop(-1).Build()).AsStrSlice()), []string{"b"})
	move := b.Lmove().Source("queue").Destination("working").Left().Right().Build()
	drive.Equal(drive.Get(client.Do(ctx, move).ToString()), "b")
	drive.Equal(drive.Waits(20, pops, pushes), []string{"queue", "c"})
	drive.Equal(drive.Waits(20, moves, pushes), "c")
	working := b.Lrange().Key("working").Start(0).Stop(-1).Build()
	drive.Equal(drive.Get(client.Do(ctx, working).AsStrSlice()), []string{"b", "c"})
	nothing(pops)
	nothing(moves)
}

func aLeaderboard(client rueidis.Client, b rueidis.Builder) {
	inf := math.Inf(1)
	everyone := []rueidis.ZScore{{Member: "Bob", Score: 2}, {Member: "Ann", Score: 3.75}, {Member: "Cid", Score: inf}}
	scores := b.Zadd().Key("board").ScoreMember().ScoreMember(1.5, "Ann").ScoreMember(2, "Bob").ScoreMember(inf, "Cid")
	drive.Equal(drive.Get(client.Do(ctx, scores.Build()).AsInt64()), 3)
	drive.Equal(drive.Get(client.Do(ctx, b.Zincrby().Key("board").Increment(2.25).Member("Ann").Build()).AsFloat64()), 3.75)
	board := b.Zrange().Key("board").Min("0").Max("-1").Withscores().Build()
	drive.Equal(drive.Get(client.Do(ctx, board).AsZScores()), everyone)
	drive.Equal(drive.Get(client.Do(ctx, b.Zscore().Key("board").Member("Cid").Build()).AsFloat64()), inf)
	drive.Equal(rueidis.IsRedisNil(client.Do(ctx, b.Zrevrank().Key("board").Member("none").Build()).Error()), true)
	ranked := client.Do(ctx, b.Zrevrank().Key("board").Member("Ann").Withscore().Build())
	drive.Equal(drive.Get(ranked.AsFloatSlice()), []float64{1, 3.75})
	above := b.Zrangebyscore().Key("board").Min("(2").Max("+inf").Withscores().Limit(0, 1).Build()
	drive.Equal(drive.Get(client.Do(ctx, above).AsZScores()), everyone[1:2])
	drive.Equal(drive.Get(client.Do(ctx, b.Zpopmin().Key("board").Count(2).Build()).AsZScores()), everyone[:2])
	drive.Equal(drive.Get(client.Do(ctx, b.Zpopmin().Key("board").Build()).AsZScore()), everyone[2])
	adds := func() error { return do(client, "ZADD", "waited", "-0.5", "Eve").Error() }
	pops := func(seconds float64) ([]rueidis.RedisMessage, error) {
		return client.Do(ctx, b.Bzpopmin().Key("waited").Timeout(seconds).Build()).ToArray()
	}
	popped := drive.Waits(20, pops, adds)
	drive.Equal(drive.Get(popped[0].ToString())+drive.Get(popped[1].ToString()), "waitedEve")
	drive.Equal(drive.Get(popped[2].AsFloat64()), -0.5)
	nothing(pops)
}

func aMap(client rueidis.Client, b rueidis.Builder) {
	add := b.Geoadd().Key("places").LongitudeLatitudeMember()
	add = add.LongitudeLatitudeMember(13.361389, 38.115556, "Palermo").LongitudeLatitudeMember(15.087269, 37.502669, "Catania")
	drive.Equal(drive.Get(client.Do(ctx, add.Build()).AsInt64()), 2)
	near := b.Geosearch().Key("places").Fromlonlat(15, 37).Byradius(200).Km().Asc().Withcoord().Withdist().Build()
	drive.Equal(drive.Get(client.Do(ctx, near).AsGeosearch()), []rueidis.GeoLocation{
		{Name: "Catania", Longitude: 15.087267458438873, Latitude: 37.50266842333162, Dist: 56.4413},
		{Name: "Palermo", Longitude: 13.361389338970184, Latitude: 38.1155563954963, Dist: 190.4424},
	})
}
