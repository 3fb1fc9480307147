# Routes to the other nodes' pods, for networks whose nodes route between pods. Settings: routes, a list of {"to",
# "via"}. They are persistent, as route.exe makes them, and name no interface: HNS creates the adapter again, with
# another number, and Windows finds the right one by the gateway, now and at each start.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$record = "$WinlabFolder\routes.json"

function Get-Mask([int]$Length) {
    $bits = ('1' * $Length).PadRight(32, '0')
    return (0..3 | ForEach-Object { [Convert]::ToInt32($bits.Substring($_ * 8, 8), 2) }) -join '.'
}

function Test-Route([string]$To, [string]$Via) {
    $there = @(Get-NetRoute -DestinationPrefix $To -PolicyStore PersistentStore -ErrorAction SilentlyContinue) +
        @(Get-NetRoute -DestinationPrefix $To -PolicyStore ActiveStore -ErrorAction SilentlyContinue)
    return @($there | Where-Object { $_.NextHop -eq $Via }).Count -gt 0
}

function Invoke-Route([string]$Verb, [string]$To, [string[]]$More = @()) {
    $address, $length = $To -split '/'
    Invoke-Native 'route.exe' (@('-p', $Verb, $address, 'MASK', (Get-Mask $length)) + $More) | Out-Null
}

function Write-Record($Routes) {
    $rows = @($Routes.Keys | Sort-Object | ForEach-Object { @{ to = $_; via = $Routes[$_] } })
    Write-Text $record (ConvertTo-Json -InputObject @{ routes = $rows } -Compress -Depth 4) | Out-Null
}

Invoke-Step {
    if (-not (Test-Joined)) { throw 'This node has not joined a cluster: join.ps1 comes first.' }
    $wanted = @{}
    foreach ($row in @($settings.routes)) {
        if ("$($row.to)" -notmatch '^\d+\.\d+\.\d+\.\d+/([1-9]|[12]\d|3[0-2])$') {
            throw "settings.routes: '$($row.to)' is no IPv4 network."
        }
        if ("$($row.via)" -notmatch '^\d+\.\d+\.\d+\.\d+$') {
            throw "settings.routes: '$($row.via)' is no IPv4 address."
        }
        $wanted["$($row.to)"] = "$($row.via)"
    }
    Set-FolderAcl $WinlabFolder $ProgramsFolder
    $before = @{}
    $noted = Get-Text $record
    if ($noted) { (ConvertFrom-Json -InputObject $noted).routes | ForEach-Object { $before["$($_.to)"] = "$($_.via)" } }
    # recorded before anything is set, so that nothing is forgotten
    $all = $before.Clone()
    foreach ($to in $wanted.Keys) { $all[$to] = $wanted[$to] }
    Write-Record $all
    $changed = $false
    foreach ($to in @($before.Keys)) {
        if ($wanted[$to] -ne $before[$to] -and (Test-Route $to $before[$to])) {
            Invoke-Route 'DELETE' $to $before[$to]
            $changed = $true
        }
    }
    foreach ($to in @($wanted.Keys | Sort-Object)) {
        if (Test-Route $to $wanted[$to]) { continue }
        Write-Progressing "route to $to by $($wanted[$to])"
        Invoke-Route 'ADD' $to $wanted[$to]
        if (-not (Test-Route $to $wanted[$to])) {
            throw "There is no route to $to by $($wanted[$to]), though route.exe has added it."
        }
        $changed = $true
    }
    Write-Record $wanted
    return @{ changed = [bool]$changed }
}
