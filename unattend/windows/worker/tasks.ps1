# For work that Windows refuses to remote sessions: the account SYSTEM does it, by a task. Not called by winlab:
# updates.ps1 and seal.ps1 read this after common.ps1.

# Has SYSTEM run $Text as C:\winlab\NAME.ps1, for $Minutes at most. Lines that it writes to NAME.log are passed on. What
# it leaves in NAME.json, which is its last act, is the result; $Lost is the error if it leaves none
function Invoke-AsSystem([string]$Name, [string]$Text, [int]$Minutes, [string]$Lost) {
    $task = "winlab-$Name"
    $file = "$WinlabFolder\$Name.ps1"
    $log = "$WinlabFolder\$Name.log"
    $outcome = "$WinlabFolder\$Name.json"
    New-Folder $WinlabFolder
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $log, $outcome
    Write-Text $file $Text | Out-Null
    $action = New-ScheduledTaskAction -Execute 'powershell.exe' `
        -Argument "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File $file"
    $limit = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::FromMinutes($Minutes))
    Register-ScheduledTask -TaskName $task -Action $action -Settings $limit -User 'SYSTEM' -RunLevel Highest -Force |
        Out-Null
    Start-ScheduledTask -TaskName $task
    $told = 0
    $queued = 0
    while ($true) {
        Start-Sleep -Seconds 5
        $ended = Test-Path -LiteralPath $outcome # asked first: then the lines that follow are all there are
        $lines = @(Get-Content -LiteralPath $log -Encoding UTF8 -ErrorAction SilentlyContinue)
        foreach ($line in $lines | Select-Object -Skip $told) { Write-Progressing $line }
        $told = $lines.Count
        if ($ended) { break }
        $state = "$((Get-ScheduledTask -TaskName $task).State)"
        if ($state -eq 'Running') { continue }
        # right after Windows' first start a task may wait for a while
        if ($state -eq 'Queued' -and $queued -lt 60) { $queued += 5; continue }
        # between its end and a look at the result there may be a moment
        Start-Sleep -Seconds 5
        if (-not (Test-Path -LiteralPath $outcome)) { throw "$Lost ($state)." }
    }
    Unregister-ScheduledTask -TaskName $task -Confirm:$false
    $result = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($outcome))
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $file, $log, $outcome
    return $result
}
